-- The outbox projections.
SELECT o.projection, o.feed, o.mode, o.backfill_until, c.position
FROM holdfast_outbox AS o
JOIN holdfast_checkpoint AS c ON c.projection = o.projection AND c.feed = o.feed
ORDER BY o.projection, o.feed
