-- Compare and set, for many streams at once; returns a row for each that was where it was thought to be.
-- SQLite differs: its own JSON functions, and no count.
INSERT INTO holdfast_stream (projection, stream, version, previous, feed)
SELECT
    :projection,
    json_extract(n.value, '$.stream'),
    json_extract(n.value, '$.version'),
    json_extract(n.value, '$.previous'),
    :feed
FROM json_each(:steps) AS n
WHERE true
ON CONFLICT (stream, projection) DO UPDATE SET
    version = excluded.version, previous = excluded.previous, feed = excluded.feed
WHERE holdfast_stream.version = excluded.previous
RETURNING 1
