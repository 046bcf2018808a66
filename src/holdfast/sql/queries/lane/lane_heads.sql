-- The heads of closed lanes: those that need an operator first, then the oldest.
SELECT
    q.id, q.lane, q.status, q.position, q.event_type, q.event_id, q.attempts, q.next_attempt_at,
    q.error_type, q.error_message, l.events
FROM holdfast_lane AS l
JOIN holdfast_queue AS q
    ON q.projection = l.projection AND q.feed = l.feed
    AND q.position = (
        SELECT min(h.position) FROM holdfast_queue AS h
        WHERE
            h.projection = l.projection AND h.feed = l.feed AND h.lane = l.lane
            AND h.status IN ('pending', 'processing', 'failed', 'dead')
    )
WHERE l.projection = :projection AND l.feed = :feed
ORDER BY CASE WHEN q.status = 'dead' THEN 0 ELSE 1 END, q.id
LIMIT :limit
