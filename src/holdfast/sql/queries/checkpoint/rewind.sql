-- Back to an earlier position. The new epoch fences the present runner.
UPDATE holdfast_checkpoint
SET position = :position, epoch = epoch + 1, revision = revision + 1, state = 'stopped'
WHERE projection = :projection AND feed = :feed AND position > :position
RETURNING position
