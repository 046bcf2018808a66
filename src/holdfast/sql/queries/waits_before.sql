-- Whether something waits in a lane before a version.
SELECT 1 FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND lane = :lane AND version < :version
    AND status IN ('pending', 'processing', 'failed', 'dead')
LIMIT 1
