-- As lane_heads, in the order of versions, for a feed that others write.
-- The condition on the feed is the index's own: without it, the index is not used.
SELECT
    q.id, q.lane, q.status, q.position, q.event_type, q.event_id, q.attempts, q.next_attempt_at,
    q.error_type, q.error_message, l.events
FROM holdfast_lane AS l
JOIN holdfast_queue AS q
    ON q.projection = l.projection AND q.feed = l.feed
    AND q.id = (
        SELECT h.id FROM holdfast_queue AS h
        WHERE
            h.projection = l.projection AND h.feed = l.feed AND h.lane = l.lane
            AND h.status IN ('pending', 'processing', 'failed', 'dead')
            AND h.feed <> 'journal' AND h.feed <> 'messages'
        ORDER BY h.version, h.position LIMIT 1
    )
WHERE l.projection = :projection AND l.feed = :feed
ORDER BY CASE WHEN q.status = 'dead' THEN 0 ELSE 1 END, q.id
LIMIT :limit
