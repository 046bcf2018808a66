-- How a projection is delivered, and whether everything that it starts with is in the queue.
SELECT o.mode, o.backfill_until, c.position, c.paused_by, c.needs_reset
FROM holdfast_outbox AS o
JOIN holdfast_checkpoint AS c ON c.projection = o.projection AND c.feed = o.feed
WHERE o.projection = :projection AND o.feed = :feed
