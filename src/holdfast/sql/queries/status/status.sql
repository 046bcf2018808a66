-- Every checkpoint, with the state of the queue: the oldest event that will be tried, and what is stuck.
SELECT
    c.id, c.projection, c.feed, c.state, c.position, c.epoch, c.leader,
    c.events_processed, c.events_per_second,
    c.last_event_id, c.last_event_type, c.last_processed_at,
    c.error_type, c.error_message, c.error_stacktrace, c.error_at,
    c.error_position, c.error_event_id, c.error_event_type, c.error_since, c.error_attempts, c.error_limit,
    c.needs_reset, c.paused_at, c.paused_by, c.paused_note, c.waiting_until, c.waiting_for,
    o.mode, o.backfill_until,
    (
        SELECT q.recorded_at FROM holdfast_queue AS q
        JOIN holdfast_lane AS l ON l.projection = q.projection AND l.feed = q.feed AND l.lane = q.lane
        WHERE
            q.projection = c.projection AND q.feed = c.feed AND l.due_at IS NOT NULL
            AND q.status IN ('pending', 'processing', 'failed')
        ORDER BY q.position LIMIT 1
    ),
    (
        SELECT min(q.recorded_at) FROM holdfast_queue AS q
        WHERE q.status = 'dead' AND q.projection = c.projection AND q.feed = c.feed
    ),
    (
        SELECT CAST(coalesce(sum(l.events), 0) AS bigint) FROM holdfast_lane AS l
        WHERE l.projection = c.projection AND l.feed = c.feed AND l.due_at IS NULL
    ),
    (SELECT count(*) FROM holdfast_lane AS l WHERE l.projection = c.projection AND l.feed = c.feed),
    (
        SELECT CAST(coalesce(sum(l.events), 0) AS bigint) FROM holdfast_lane AS l
        WHERE l.projection = c.projection AND l.feed = c.feed
    )
FROM holdfast_checkpoint AS c
LEFT JOIN holdfast_outbox AS o ON o.projection = c.projection AND o.feed = c.feed
ORDER BY c.projection, c.feed
