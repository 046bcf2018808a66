-- As lane_items, in the order of versions, for a feed that others write.
-- The condition on the feed is the index's own: without it, the index is not used.
SELECT
    id, status, next_attempt_at, retries, attempts, first_failed_at, history,
    position, stream, version, CAST(event_id AS text), event_type, data, metadata, recorded_at, kept
FROM holdfast_item
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
    AND feed <> 'journal' AND feed <> 'messages'
ORDER BY version, position LIMIT :limit
