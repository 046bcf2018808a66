-- A leader that has passed nothing yet begins here.
UPDATE holdfast_checkpoint SET position = :position
WHERE id = :id AND epoch = :epoch AND position = 0
RETURNING id, projection, feed, position, epoch, state, events_processed, revision, leader, paused_by,
    unclean_ends, mark_position, mark_attempts, asked_by
