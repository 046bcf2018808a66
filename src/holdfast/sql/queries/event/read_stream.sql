-- One stream's events. PostgreSQL's driver would decode JSON: it is read as text.
SELECT position, stream, version, CAST(id AS text), type, CAST(data AS text), CAST(metadata AS text),
    recorded_at
FROM holdfast_event
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :limit
