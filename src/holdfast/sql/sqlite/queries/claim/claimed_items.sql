-- SQLite differs: its own JSON functions. The first items of claimed lanes, with their events.
SELECT
    i.lane, i.id, i.status, i.next_attempt_at, i.retries, i.attempts, i.first_failed_at, i.history,
    i.position, i.stream, i.version, i.event_id, i.event_type,
    CASE WHEN i.data = '' THEN e.data ELSE i.data END,
    CASE WHEN i.data = '' THEN e.metadata ELSE i.metadata END,
    i.recorded_at, i.kept
FROM json_each(:lanes) AS n
JOIN holdfast_queue AS i ON i.id IN (
    SELECT q.id FROM holdfast_queue AS q
    WHERE
        q.projection = :projection AND q.feed = :feed AND q.lane = n.value
        AND q.status IN ('pending', 'processing', 'failed', 'dead')
    ORDER BY q.position LIMIT :limit
)
LEFT JOIN holdfast_event AS e ON i.data = '' AND e.position = i.position
ORDER BY i.position
