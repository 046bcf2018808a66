-- SQLite differs: its own JSON functions. These heads were not tried after all.
UPDATE holdfast_queue
SET
    status = CASE WHEN first_failed_at IS NULL THEN 'pending' ELSE 'failed' END,
    attempts = attempts - 1, claimed_by = NULL, claimed_until = NULL
WHERE status = 'processing' AND id IN (SELECT value FROM json_each(:ids))
