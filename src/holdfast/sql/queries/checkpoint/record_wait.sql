-- Why the projection waits, for status and explain. A mark goes, unless it is to be kept: the event failed,
-- and the process lives.
UPDATE holdfast_checkpoint
SET
    waiting_until = :until,
    waiting_for = :reason,
    mark_position = CASE WHEN :keep_mark THEN mark_position END,
    mark_attempts = CASE WHEN :keep_mark THEN mark_attempts ELSE 0 END
WHERE id = :id AND epoch = :epoch
