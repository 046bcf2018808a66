-- The positions in a range whose events wait already.
SELECT position FROM holdfast_queue
WHERE
    projection = :projection AND feed = :feed AND position BETWEEN :first AND :last
    AND status IN ('pending', 'processing', 'failed', 'dead')
