-- PostgreSQL differs: the ids come as one JSON document. What is done stays to be looked at.
UPDATE holdfast_queue
SET status = 'done', claimed_by = NULL, claimed_until = NULL, next_attempt_at = NULL, updated_at = :at
WHERE id = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST(:ids AS json)) AS bigint)))
