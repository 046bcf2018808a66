-- One item.
SELECT
    id, projection, feed, lane, status, attempts, retries, next_attempt_at, first_failed_at,
    last_failed_at, error_type, error_message, error_stacktrace, history, resolved_by, resolved_at,
    note, created_at, updated_at,
    position, stream, version, event_id, event_type, data, metadata, recorded_at, kept
FROM holdfast_item
WHERE id = :id
