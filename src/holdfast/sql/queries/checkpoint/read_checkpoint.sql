-- One checkpoint, with the columns that a runner needs.
SELECT id, projection, feed, position, epoch, state, events_processed, revision, leader, paused_by,
    unclean_ends, mark_position, mark_attempts, asked_by, waiting_until IS NOT NULL
FROM holdfast_checkpoint
WHERE projection = :projection AND feed = :feed
