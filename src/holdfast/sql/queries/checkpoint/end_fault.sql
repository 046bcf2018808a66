-- The event that has stopped a projection is out of its way.
UPDATE holdfast_checkpoint
SET
    state = 'stopped', waiting_until = NULL, waiting_for = NULL,
    error_type = NULL, error_message = NULL, error_stacktrace = NULL, error_at = NULL,
    error_position = NULL, error_event_id = NULL, error_event_type = NULL,
    error_since = NULL, error_attempts = 0, error_limit = NULL
WHERE projection = :projection AND feed = :feed AND error_position = :position AND NOT needs_reset
