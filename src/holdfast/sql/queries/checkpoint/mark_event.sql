-- This event is tried alone. If the process dies now, it is known by which event, and how often.
UPDATE holdfast_checkpoint SET mark_position = :position, mark_attempts = :attempts
WHERE id = :id AND epoch = :epoch
RETURNING mark_attempts
