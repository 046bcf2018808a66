-- An operator has dealt with the event: its lane goes on.
UPDATE holdfast_queue
SET status = 'resolved', resolved_by = :by, resolved_at = :at, note = coalesce(:note, note),
    updated_at = :at
WHERE id = :id AND status IN ('pending', 'processing', 'failed', 'dead', 'skipped')
RETURNING id
