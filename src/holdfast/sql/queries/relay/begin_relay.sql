-- A process begins to deliver. It tries again after a fault, unless only a reset helps.
UPDATE holdfast_checkpoint
SET
    epoch = epoch + 1, state = 'stopped',
    error_type = NULL, error_message = NULL, error_stacktrace = NULL, error_at = NULL,
    error_position = NULL, error_event_id = NULL, error_event_type = NULL,
    error_since = NULL, error_attempts = 0, error_limit = NULL
WHERE projection = :projection AND feed = :feed AND NOT needs_reset
RETURNING epoch
