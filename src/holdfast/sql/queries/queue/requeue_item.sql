-- Only what has failed is put back; it is the head of its lane, or waits for its turn there.
UPDATE holdfast_queue
SET status = 'pending', attempts = 0, retries = 0, next_attempt_at = NULL, note = coalesce(:note, note),
    updated_at = :at
WHERE id = :id AND status IN ('failed', 'dead')
RETURNING id
