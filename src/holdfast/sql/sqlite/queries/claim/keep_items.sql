-- SQLite differs: the ids come as one JSON document. What is done stays to be looked at.
UPDATE holdfast_queue
SET status = 'done', claimed_by = NULL, claimed_until = NULL, next_attempt_at = NULL, updated_at = :at
WHERE id IN (SELECT value FROM json_each(:ids))
