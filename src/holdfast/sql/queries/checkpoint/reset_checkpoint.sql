-- Back to the beginning. The new epoch fences the present runner.
UPDATE holdfast_checkpoint
SET
    position = 0, epoch = epoch + 1, revision = revision + 1, state = 'stopped',
    last_event_id = NULL, last_event_type = NULL, last_processed_at = NULL,
    events_processed = 0, events_per_second = 0,
    error_type = NULL, error_message = NULL, error_stacktrace = NULL, error_at = NULL,
    error_position = NULL, error_event_id = NULL, error_event_type = NULL,
    error_since = NULL, error_attempts = 0, error_limit = NULL,
    needs_reset = FALSE,
    waiting_until = NULL, waiting_for = NULL,
    unclean_ends = 0, mark_position = NULL, mark_attempts = 0, origin = NULL
WHERE projection = :projection
