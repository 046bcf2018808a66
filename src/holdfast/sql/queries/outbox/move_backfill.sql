-- All events up to here are in the queue, or were applied before.
UPDATE holdfast_checkpoint SET position = :through
WHERE projection = :projection AND feed = :feed AND position = :after
RETURNING id
