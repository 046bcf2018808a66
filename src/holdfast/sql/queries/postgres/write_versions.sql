-- Compare and set, for many streams at once; returns how many were where they were thought to be. Those
-- who write the same streams lock them in the same order.
-- PostgreSQL differs: its own JSON functions, and a count.
WITH written AS (
    INSERT INTO holdfast_stream AS s (projection, stream, version, previous, feed)
    SELECT :projection, n.stream, n.version, n.previous, :feed
    FROM json_to_recordset(CAST(:steps AS json)) AS n (stream text, version bigint, previous bigint)
    ORDER BY n.stream COLLATE "C"
    ON CONFLICT (stream, projection) DO UPDATE SET
        version = excluded.version, previous = excluded.previous, feed = excluded.feed
    WHERE s.version = excluded.previous
    RETURNING 1
)
SELECT count(*) FROM written
