-- The leader and the position of each shard.
SELECT feed, leader, position, state, asked_by, paused_by, needs_reset FROM holdfast_checkpoint
WHERE projection = :projection AND (feed = 'journal' OR feed LIKE 'journal[%/%]')
