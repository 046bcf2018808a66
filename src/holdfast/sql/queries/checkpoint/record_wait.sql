-- Why the projection does not go on just now, for those who ask. An event that was tried alone and
-- has failed has not killed the process.
UPDATE holdfast_checkpoint
SET
    waiting_until = :until,
    waiting_for = :reason,
    mark_position = CASE WHEN :keep_mark THEN mark_position END,
    mark_attempts = CASE WHEN :keep_mark THEN mark_attempts ELSE 0 END
WHERE id = :id AND epoch = :epoch
