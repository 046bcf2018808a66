-- As first_undelivered, of one lane.
SELECT min(q.position) FROM holdfast_lane AS l
JOIN holdfast_queue AS q ON q.projection = l.projection AND q.feed = l.feed AND q.lane = l.lane
WHERE
    l.projection = :projection AND l.feed = :feed AND l.lane = :lane AND l.due_at IS NOT NULL
    AND q.position <= :position
    AND q.status IN ('pending', 'processing', 'failed')
