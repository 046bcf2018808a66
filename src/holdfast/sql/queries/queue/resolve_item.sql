-- A person has dealt with it: the lane goes on behind it.
UPDATE holdfast_queue
SET status = 'resolved', resolved_by = :by, resolved_at = :at, note = coalesce(:note, note),
    updated_at = :at
WHERE id = :id AND status IN ('pending', 'processing', 'failed', 'dead', 'skipped')
RETURNING id
