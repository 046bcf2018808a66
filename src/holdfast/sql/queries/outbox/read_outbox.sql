-- The mode of an outbox projection, and how far its backfill is.
SELECT o.mode, o.backfill_until, c.position, c.paused_by, c.needs_reset, c.epoch
FROM holdfast_outbox AS o
JOIN holdfast_checkpoint AS c ON c.projection = o.projection AND c.feed = o.feed
WHERE o.projection = :projection AND o.feed = :feed
