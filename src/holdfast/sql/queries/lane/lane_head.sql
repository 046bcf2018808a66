-- The head of a lane.
SELECT status, next_attempt_at, error_type FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
ORDER BY position LIMIT 1
