-- What waits in a projection's queue, by type: whether for a person, how many events, and the oldest.
SELECT q.event_type, l.due_at IS NULL, count(*), min(q.recorded_at)
FROM holdfast_lane AS l
JOIN holdfast_queue AS q ON q.projection = l.projection AND q.feed = l.feed AND q.lane = l.lane
WHERE
    l.projection = :projection AND l.feed = :feed
    AND q.status IN ('pending', 'processing', 'failed', 'dead')
GROUP BY q.event_type, l.due_at IS NULL
