-- The first and the last version that wait in a lane.
SELECT min(version), max(version) FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'processing', 'failed', 'dead')
