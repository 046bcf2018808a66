-- Whether something waits in a lane before a version, where others write the feed.
-- The index that has this order leaves our own feeds out, and wants to hear it.
SELECT 1 FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND lane = :lane AND version < :version
    AND status IN ('pending', 'processing', 'failed', 'dead')
    AND feed <> 'journal' AND feed <> 'messages'
ORDER BY version, position LIMIT 1
