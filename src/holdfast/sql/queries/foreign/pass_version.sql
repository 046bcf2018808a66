-- An operator has resolved an event, or the lack of one: its stream goes on behind it.
INSERT INTO holdfast_stream (projection, stream, version, previous, feed)
VALUES (:projection, :stream, :version, -1, :feed)
ON CONFLICT (stream, projection) DO UPDATE SET
    previous = holdfast_stream.version, version = excluded.version
WHERE holdfast_stream.version < excluded.version
