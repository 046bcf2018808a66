-- Compare and set: returns no row if another runner has taken over, or an operator has changed something.
-- Progress ends a fault.
UPDATE holdfast_checkpoint
SET
    position = :position,
    state = 'running',
    last_event_id = coalesce(:event_id, last_event_id),
    last_event_type = coalesce(:event_type, last_event_type),
    last_processed_at = :at,
    events_processed = events_processed + :events,
    events_per_second = :events_per_second,
    error_type = NULL,
    error_message = NULL,
    error_stacktrace = NULL,
    error_at = NULL,
    error_position = NULL,
    error_event_id = NULL,
    error_event_type = NULL,
    error_since = NULL,
    error_attempts = 0,
    error_limit = NULL,
    waiting_until = NULL,
    waiting_for = NULL,
    unclean_ends = CASE WHEN :position > position THEN 0 ELSE unclean_ends END,
    mark_position = NULL,
    mark_attempts = 0
WHERE id = :id AND epoch = :epoch AND position = :after AND revision = :revision
RETURNING id, projection, feed, position, epoch, state, events_processed, revision, leader, paused_by,
    unclean_ends, mark_position, mark_attempts, asked_by
