-- How much would be lost with a projection's queue.
SELECT count(*) FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed
    AND status IN ('pending', 'processing', 'failed', 'dead')
