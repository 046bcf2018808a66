-- Compare and set, for many streams at once; writes those that were where they were thought to be. Who
-- writes the same streams locks them in the same order.
-- PostgreSQL differs: all at once, from arrays.
INSERT INTO holdfast_stream AS s (projection, stream, version, previous, feed)
SELECT :projection, n.stream, n.version, n.previous, :feed
FROM
    unnest(
        CAST(:stream AS text[]), CAST(:version AS bigint[]), CAST(:previous AS bigint[])
    ) AS n (stream, version, previous)
ORDER BY n.stream COLLATE "C"
ON CONFLICT (stream, projection) DO UPDATE SET
    version = excluded.version, previous = excluded.previous, feed = excluded.feed
WHERE s.version = excluded.previous
