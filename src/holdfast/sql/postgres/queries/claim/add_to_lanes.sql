-- PostgreSQL differs: its own JSON functions. Adds to the number of events that wait in lanes.
INSERT INTO holdfast_lane AS l (projection, feed, lane, events, due_at)
SELECT :projection, :feed, n.lane, n.events, clock_timestamp()
FROM json_to_recordset(CAST(:lanes AS json)) AS n (lane text, events bigint)
ORDER BY n.lane
ON CONFLICT (projection, feed, lane) DO UPDATE SET events = l.events + excluded.events
