-- SQLite differs: its own JSON functions. Adds to the number of events that wait in lanes.
INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
SELECT :projection, :feed, json_extract(n.value, '$.lane'), json_extract(n.value, '$.events'), :now
FROM json_each(:lanes) AS n
WHERE true
ON CONFLICT (projection, feed, lane) DO UPDATE SET events = events + excluded.events
