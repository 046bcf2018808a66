-- Moves a checkpoint past events that need not be read from the feed.
UPDATE holdfast_checkpoint SET position = :position
WHERE projection = :projection AND feed = :feed AND position < :position
