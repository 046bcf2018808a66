-- A head has failed again: when it is tried next, or that it needs an operator.
UPDATE holdfast_queue
SET
    status = :status, attempts = :attempts, retries = :retries, next_attempt_at = :next_attempt_at,
    first_failed_at = :first_failed_at, last_failed_at = :last_failed_at,
    error_type = :error_type, error_message = :error_message, error_stacktrace = :error_stacktrace,
    history = :history, updated_at = :at
WHERE id = :id
