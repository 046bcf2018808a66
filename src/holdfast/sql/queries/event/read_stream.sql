-- One stream's events. As text, since PostgreSQL's driver would decode the JSON.
SELECT position, stream, version, CAST(id AS text), type, CAST(data AS text), CAST(metadata AS text),
    recorded_at
FROM holdfast_event
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :limit
