-- The next event is in the queue: the feed is read from the one behind it.
UPDATE holdfast_checkpoint SET position = :position
WHERE projection = :projection AND feed = :feed AND position < :position
