-- Compare and set; writes nothing if the stream is not where it was thought to be.
-- SQLite differs: one stream at a time.
INSERT INTO holdfast_stream (projection, stream, version, previous, feed)
VALUES (:projection, :stream, :version, :previous, :feed)
ON CONFLICT (stream, projection) DO UPDATE SET
    version = excluded.version, previous = excluded.previous, feed = excluded.feed
WHERE holdfast_stream.version = excluded.previous
