-- The events that wait in a lane, in order.
SELECT
    id, status, next_attempt_at, retries, attempts, first_failed_at, history,
    position, stream, version, CAST(event_id AS text), event_type, data, metadata, recorded_at, kept
FROM holdfast_item
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
ORDER BY position LIMIT :limit
