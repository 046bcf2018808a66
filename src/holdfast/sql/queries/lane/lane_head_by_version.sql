-- The head of a lane, where others write the feed.
-- The index that has this order leaves our own feeds out, and wants to hear it.
SELECT status, next_attempt_at, error_type FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
    AND feed <> 'journal' AND feed <> 'messages'
ORDER BY version, position LIMIT 1
