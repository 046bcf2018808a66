-- What came too early has its turn now.
UPDATE holdfast_queue
SET status = 'pending', next_attempt_at = NULL
WHERE
    projection = :projection AND feed = :feed AND lane = :lane AND version <= :version
    AND status IN ('failed', 'dead') AND error_type = 'VersionGap'
