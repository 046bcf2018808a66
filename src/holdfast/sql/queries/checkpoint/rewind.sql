-- Back to an earlier position, under a new epoch that fences whoever runs it now.
UPDATE holdfast_checkpoint
SET position = :position, epoch = epoch + 1, revision = revision + 1, state = 'stopped'
WHERE projection = :projection AND feed = :feed AND position > :position
RETURNING position
