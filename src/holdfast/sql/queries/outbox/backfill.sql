-- Puts a range of events into the queue, without those that are there.
INSERT INTO holdfast_queue (
    projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
    recorded_at, status, created_at, updated_at
)
SELECT
    t.projection, t.feed, e.stream, e.position, e.stream, e.version, e.id, e.type, '', '',
    e.recorded_at, 'pending', :at, :at
FROM holdfast_event AS e
JOIN holdfast_outbox_type AS t ON t.event_type IN (e.type, '*')
WHERE
    t.projection = :projection AND t.feed = :feed
    AND e.position > :after AND e.position <= :through
ORDER BY e.position
ON CONFLICT (projection, feed, position) DO NOTHING
RETURNING lane
