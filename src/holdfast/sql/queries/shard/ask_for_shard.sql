-- Whoever leads it sees that somebody else wants it, and leaves it to him.
UPDATE holdfast_checkpoint SET asked_by = :by, revision = revision + 1
WHERE projection = :projection AND feed = :feed AND leader = :leader AND asked_by IS NULL
