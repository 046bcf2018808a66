-- SQLite differs: JSON is text already.
SELECT position, stream, version, id, type, data, metadata, recorded_at
FROM holdfast_event
WHERE position > :after ORDER BY position LIMIT :limit
