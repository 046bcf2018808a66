-- Ends a shard, and fences its runner.
DELETE FROM holdfast_checkpoint WHERE projection = :projection AND feed = :feed
RETURNING events_processed
