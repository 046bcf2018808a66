-- What is too long ago to come again.
DELETE FROM holdfast_seen
WHERE projection = :projection AND feed = :feed AND position <= :until
