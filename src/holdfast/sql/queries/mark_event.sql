-- This event is tried alone. If the process dies now, it is known by which event.
UPDATE holdfast_checkpoint
SET
    mark_attempts = CASE WHEN mark_position = :position THEN mark_attempts + 1 ELSE 1 END,
    mark_position = :position
WHERE id = :id AND epoch = :epoch
RETURNING mark_attempts
