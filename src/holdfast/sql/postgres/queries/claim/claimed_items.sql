-- PostgreSQL differs: its own JSON functions. The first items of claimed lanes, with their events.
SELECT
    i.lane, i.id, i.status, i.next_attempt_at, i.retries, i.attempts, i.first_failed_at, i.history,
    i.position, i.stream, i.version, CAST(i.event_id AS text), i.event_type,
    CASE WHEN i.data = '' THEN CAST(e.data AS text) ELSE i.data END,
    CASE WHEN i.data = '' THEN CAST(e.metadata AS text) ELSE i.metadata END,
    i.recorded_at, i.kept
FROM json_array_elements_text(CAST(:lanes AS json)) AS n (lane)
CROSS JOIN LATERAL (
    SELECT * FROM holdfast_queue AS q
    WHERE
        q.projection = :projection AND q.feed = :feed AND q.lane = n.lane
        AND q.status IN ('pending', 'processing', 'failed', 'dead')
    ORDER BY q.position LIMIT :limit
) AS i
LEFT JOIN LATERAL (
    SELECT v.data, v.metadata FROM holdfast_event AS v
    WHERE i.data = '' AND v.position = i.position LIMIT 1
) AS e ON true
ORDER BY i.position
