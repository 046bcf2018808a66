-- What tells the feed from another one of its name, and where it begins. Noted once, until a reset.
UPDATE holdfast_checkpoint
SET origin = :origin, position = CASE WHEN position < :position THEN :position ELSE position END
WHERE id = :id AND epoch = :epoch AND origin IS NULL
RETURNING id, projection, feed, position, epoch, state, events_processed, revision, leader, paused_by,
    unclean_ends, mark_position, mark_attempts, asked_by
