-- Every checkpoint, with the time of the first event that it has not passed.
SELECT
    c.id, c.projection, c.feed, c.state, c.position, c.epoch, c.leader,
    c.events_processed, c.events_per_second,
    c.last_event_id, c.last_event_type, c.last_processed_at,
    c.error_type, c.error_message, c.error_stacktrace, c.error_at,
    c.error_position, c.error_event_id, c.error_event_type,
    (SELECT e.recorded_at FROM holdfast_event AS e WHERE e.position > c.position ORDER BY e.position LIMIT 1)
FROM holdfast_checkpoint AS c
ORDER BY c.projection, c.feed
