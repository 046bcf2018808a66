-- SQLite differs: its own JSON functions.
INSERT INTO holdfast_seen (event_id, projection, feed, position)
SELECT json_extract(n.value, '$.id'), :projection, :feed, json_extract(n.value, '$.position')
FROM json_each(:events) AS n
WHERE true
ON CONFLICT (event_id, projection) DO NOTHING
