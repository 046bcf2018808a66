-- All shards of a projection change: fences their runners, which have read the old layout.
UPDATE holdfast_checkpoint
SET
    revision = revision + 1, epoch = epoch + 1,
    state = CASE state WHEN 'running' THEN 'stopped' ELSE state END
WHERE projection = :projection AND (feed = 'journal' OR feed LIKE 'journal[%/%]')
RETURNING feed, position, needs_reset
