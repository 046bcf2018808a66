-- A person changes something that concerns all shards: no runner commits before it has seen it.
UPDATE holdfast_checkpoint SET revision = revision + 1
WHERE projection = :projection
RETURNING feed, position, paused_by
