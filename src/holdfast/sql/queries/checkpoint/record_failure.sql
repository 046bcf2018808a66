-- Why an event is tried again. Progress clears it.
UPDATE holdfast_checkpoint
SET
    error_type = :error_type,
    error_message = :error_message,
    error_stacktrace = :error_stacktrace,
    error_at = :at,
    error_position = :position,
    error_event_id = :event_id,
    error_event_type = :event_type,
    error_since = :since,
    error_attempts = :attempts,
    error_limit = :limit
WHERE id = :id AND epoch = :epoch
