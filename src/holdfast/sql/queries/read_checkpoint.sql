-- One checkpoint, as a runner needs it.
SELECT id, projection, feed, position, epoch, state, events_processed
FROM holdfast_checkpoint
WHERE projection = :projection AND feed = :feed
