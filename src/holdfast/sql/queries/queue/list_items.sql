-- Items that fit a selection, oldest first; NULL selects all.
SELECT
    id, projection, feed, lane, status, attempts, retries, next_attempt_at, first_failed_at,
    last_failed_at, error_type, error_message, error_stacktrace, history, resolved_by, resolved_at,
    note, created_at, updated_at,
    position, stream, version, event_id, event_type, data, metadata, recorded_at, kept
FROM holdfast_item
WHERE
    (CAST(:projection AS text) IS NULL OR projection = :projection)
    AND (CAST(:lane AS text) IS NULL OR lane = :lane)
    AND (CAST(:version AS bigint) IS NULL OR version = :version)
    AND (CAST(:status AS text) IS NULL OR status = :status)
    AND (CAST(:has_failed AS boolean) IS NULL OR (first_failed_at IS NOT NULL) = :has_failed)
    AND (CAST(:error_type AS text) IS NULL OR error_type = :error_type)
    AND (CAST(:event_type AS text) IS NULL OR event_type = :event_type)
    AND created_at <= :created_until
    AND id > :after_id
ORDER BY id LIMIT :limit
