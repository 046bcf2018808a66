-- A fault outlives the process. The epoch keeps it from a successor's row.
UPDATE holdfast_checkpoint
SET
    state = 'faulted',
    leader = NULL,
    leader_pid = NULL,
    error_type = :error_type,
    error_message = :error_message,
    error_stacktrace = :error_stacktrace,
    error_at = :at,
    error_position = :position,
    error_event_id = :event_id,
    error_event_type = :event_type,
    error_since = :since,
    error_attempts = :attempts,
    error_limit = :limit,
    needs_reset = needs_reset OR :needs_reset
WHERE id = :id AND epoch = :epoch
