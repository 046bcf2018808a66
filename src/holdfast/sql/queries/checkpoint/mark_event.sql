-- The runner is about to try this event alone. If the process dies, the mark names the event.
UPDATE holdfast_checkpoint SET mark_position = :position, mark_attempts = :attempts
WHERE id = :id AND epoch = :epoch
RETURNING mark_attempts
