-- Whoever begins again begins after this.
UPDATE holdfast_checkpoint SET position = :position
WHERE projection = :projection AND feed = :feed AND position < :position
