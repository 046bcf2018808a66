-- SQLite differs: its own JSON functions. Done items stay for a time.
UPDATE holdfast_queue
SET status = 'done', claimed_by = NULL, claimed_until = NULL, next_attempt_at = NULL, updated_at = :at
WHERE id IN (SELECT value FROM json_each(:ids))
