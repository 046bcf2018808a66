-- A person changes something that concerns all shards: no runner commits before it has seen it.
UPDATE holdfast_checkpoint SET revision = revision + 1
WHERE projection = :projection AND (feed = 'journal' OR feed LIKE 'journal[%/%]')
RETURNING feed, position, paused_by, needs_reset
