-- What was being tried in a lane was not tried, as far as anybody counts.
UPDATE holdfast_queue
SET
    status = CASE WHEN first_failed_at IS NULL THEN 'pending' ELSE 'failed' END,
    attempts = attempts - 1, claimed_by = NULL, claimed_until = NULL
WHERE projection = :projection AND feed = :feed AND lane = :lane AND status = 'processing'
