-- SQLite differs: JSON is text already.
SELECT position, stream, version, id, type, data, metadata, recorded_at
FROM holdfast_event
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :limit
