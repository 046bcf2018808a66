-- A shard that is no more; whoever runs it is fenced.
DELETE FROM holdfast_checkpoint WHERE projection = :projection AND feed = :feed
RETURNING events_processed
