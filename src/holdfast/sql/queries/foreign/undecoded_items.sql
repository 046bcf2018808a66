-- What could not be decoded, and is to be tried: by now it may be read.
SELECT
    id, status, next_attempt_at, retries, attempts, first_failed_at, history,
    position, stream, version, CAST(event_id AS text), event_type, data, metadata, recorded_at, kept
FROM holdfast_item
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND status IN ('pending', 'failed') AND event_type = 'holdfast.undecodable'
ORDER BY version, position LIMIT :limit
