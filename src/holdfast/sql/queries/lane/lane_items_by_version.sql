-- What waits in a lane, where others write the feed: versions say what comes before what.
-- The index that has this order leaves our own feeds out, and wants to hear it.
SELECT
    id, status, next_attempt_at, retries, attempts, first_failed_at, history,
    position, stream, version, CAST(event_id AS text), event_type, data, metadata, recorded_at, kept
FROM holdfast_item
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
    AND feed <> 'journal' AND feed <> 'messages'
ORDER BY version, position LIMIT :limit
