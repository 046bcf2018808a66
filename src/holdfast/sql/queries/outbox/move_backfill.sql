-- Everything up to here is in the queue, or was applied before.
UPDATE holdfast_checkpoint SET position = :through
WHERE projection = :projection AND feed = :feed AND position = :after
RETURNING id
