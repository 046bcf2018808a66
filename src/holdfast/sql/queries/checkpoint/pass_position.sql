-- Moves a checkpoint past events that it need not read: they are in the queue.
UPDATE holdfast_checkpoint SET position = :position
WHERE projection = :projection AND feed = :feed AND position < :position
