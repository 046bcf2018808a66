-- One more attempt, at a given time; earlier attempts still count.
UPDATE holdfast_queue
SET status = 'failed', next_attempt_at = :next_attempt_at, note = coalesce(:note, note), updated_at = :at
WHERE id = :id AND status IN ('failed', 'dead')
RETURNING id
