-- Puts a failed item back in its lane, as if new.
UPDATE holdfast_queue
SET status = 'pending', attempts = 0, retries = 0, next_attempt_at = NULL, note = coalesce(:note, note),
    updated_at = :at
WHERE id = :id AND status IN ('failed', 'dead')
RETURNING id
