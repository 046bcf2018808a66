-- PostgreSQL differs: its own JSON functions. These heads were not tried after all.
UPDATE holdfast_queue
SET
    status = CASE WHEN first_failed_at IS NULL THEN 'pending' ELSE 'failed' END,
    attempts = attempts - 1, claimed_by = NULL, claimed_until = NULL
WHERE
    status = 'processing'
    AND id = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS bigint)))
