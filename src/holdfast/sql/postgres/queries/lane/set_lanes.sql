-- PostgreSQL differs: its own JSON functions. Writes the rows of lanes, and ends their claims.
INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
SELECT :projection, :feed, n.lane, n.events, n.due_at
FROM json_to_recordset(CAST(:lanes AS json)) AS n (lane text, events bigint, due_at timestamptz)
ON CONFLICT (projection, feed, lane) DO UPDATE SET
    events = excluded.events, due_at = excluded.due_at, token = NULL
