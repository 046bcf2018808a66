-- How often an event has failed, and why, if the projection has stopped at it.
SELECT error_attempts, error_since, error_at, error_type, error_message, error_stacktrace
FROM holdfast_checkpoint
WHERE projection = :projection AND feed = :feed AND error_position = :position
