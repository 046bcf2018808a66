-- The events after a position that are visible now, without payloads.
SELECT position, stream, type, recorded_at FROM holdfast_event
WHERE position > :after ORDER BY position LIMIT :limit
