-- An operator changes something: no runner commits before it has seen the change. Locks the checkpoint.
UPDATE holdfast_checkpoint SET revision = revision + 1
WHERE projection = :projection AND feed = :feed
RETURNING position
