-- SQLite differs: its own JSON functions. Writes the rows of lanes, and ends their claims.
INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
SELECT
    :projection, :feed,
    json_extract(n.value, '$.lane'),
    json_extract(n.value, '$.events'),
    json_extract(n.value, '$.due_at')
FROM json_each(:lanes) AS n
WHERE true
ON CONFLICT (projection, feed, lane) DO UPDATE SET
    events = excluded.events, due_at = excluded.due_at, token = NULL
