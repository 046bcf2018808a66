-- PostgreSQL differs: its own JSON functions. Done items stay for a time.
UPDATE holdfast_queue
SET status = 'done', claimed_by = NULL, claimed_until = NULL, next_attempt_at = NULL, updated_at = :at
WHERE id = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS bigint)))
