-- Adds an event that waits, or was skipped. After a rewind, an item that is over begins anew; one that waits
-- stays as it is.
INSERT INTO holdfast_queue (
    projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
    recorded_at, status, attempts, next_attempt_at, first_failed_at, last_failed_at,
    error_type, error_message, error_stacktrace, history, kept, created_at, updated_at
)
VALUES (
    :projection, :feed, :lane, :position, :stream, :version, :id, :type, :data, :metadata,
    :recorded_at, :status, :attempts, :next_attempt_at, :first_failed_at, :last_failed_at,
    :error_type, :error_message, :error_stacktrace, :history, :kept, :at, :at
)
ON CONFLICT (projection, feed, position) DO UPDATE SET
    lane = excluded.lane, stream = excluded.stream, version = excluded.version,
    event_id = excluded.event_id, event_type = excluded.event_type, data = excluded.data,
    metadata = excluded.metadata, recorded_at = excluded.recorded_at, kept = excluded.kept,
    status = excluded.status, attempts = excluded.attempts, retries = 0,
    next_attempt_at = excluded.next_attempt_at, first_failed_at = excluded.first_failed_at,
    last_failed_at = excluded.last_failed_at, error_type = excluded.error_type,
    error_message = excluded.error_message, error_stacktrace = excluded.error_stacktrace,
    history = excluded.history, resolved_by = NULL, resolved_at = NULL,
    updated_at = excluded.updated_at
WHERE holdfast_queue.status IN ('skipped', 'resolved')
