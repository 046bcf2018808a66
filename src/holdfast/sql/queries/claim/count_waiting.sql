-- The number of items that wait in a projection's queue.
SELECT count(*) FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed
    AND status IN ('pending', 'processing', 'failed', 'dead')
