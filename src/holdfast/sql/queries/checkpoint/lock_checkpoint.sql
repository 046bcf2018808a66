-- Locks the checkpoint: no operator changes anything before the transaction ends.
UPDATE holdfast_checkpoint SET revision = revision WHERE id = :id AND epoch = :epoch
RETURNING id, projection, feed, position, epoch, state, events_processed, revision, leader, paused_by,
    unclean_ends, mark_position, mark_attempts, asked_by
