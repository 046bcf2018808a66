-- The number of events that wait in a lane.
SELECT count(*) FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
