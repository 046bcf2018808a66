-- The next pending items; nothing is claimed.
SELECT
    id, position, stream, version, CAST(event_id AS text), event_type, data, metadata, recorded_at
FROM holdfast_item
WHERE projection = :projection AND feed = :feed AND status = 'pending' AND id > :after
ORDER BY id LIMIT :limit
