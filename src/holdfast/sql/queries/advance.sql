-- Compare and set: no row comes back if another runner has taken over. Progress ends a fault.
UPDATE holdfast_checkpoint
SET
    position = :position,
    state = 'running',
    last_event_id = :event_id,
    last_event_type = :event_type,
    last_processed_at = :at,
    events_processed = events_processed + :events,
    events_per_second = :events_per_second,
    error_type = NULL,
    error_message = NULL,
    error_stacktrace = NULL,
    error_at = NULL,
    error_position = NULL,
    error_event_id = NULL,
    error_event_type = NULL
WHERE id = :id AND epoch = :epoch AND position = :after
RETURNING id, projection, feed, position, epoch, state, events_processed
