-- Takes back the attempt at the head of a lane: it does not count.
UPDATE holdfast_queue
SET
    status = CASE WHEN first_failed_at IS NULL THEN 'pending' ELSE 'failed' END,
    attempts = attempts - 1, claimed_by = NULL, claimed_until = NULL
WHERE projection = :projection AND feed = :feed AND lane = :lane AND status = 'processing'
