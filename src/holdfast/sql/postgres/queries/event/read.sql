-- PostgreSQL differs: JSON as it is stored, since to make text of it takes a fifth of the server's time.
-- The connection knows how to load it.
SELECT position, stream, version, CAST(id AS text), type, data, metadata, recorded_at
FROM holdfast_event
WHERE position > :after ORDER BY position LIMIT :limit
