-- The first event, up to a position, that will be tried without an operator.
SELECT min(q.position) FROM holdfast_lane AS l
JOIN holdfast_queue AS q ON q.projection = l.projection AND q.feed = l.feed AND q.lane = l.lane
WHERE
    l.projection = :projection AND l.feed = :feed AND l.due_at IS NOT NULL
    AND q.position <= :position
    AND q.status IN ('pending', 'processing', 'failed')
