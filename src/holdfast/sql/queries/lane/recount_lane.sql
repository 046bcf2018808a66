-- Makes the row of a lane say what the queue holds, and ends its claim. A head that is to be tried at once is
-- due since it failed first: of many lanes the oldest comes first. Returns nothing for an empty lane.
INSERT INTO holdfast_lane (projection, feed, lane, events, due_at, has_failed)
SELECT
    q.projection, q.feed, q.lane, count(*),
    (
        SELECT
            CASE
                WHEN h.status = 'failed' AND coalesce(h.error_type, '') <> 'VersionGap'
                    THEN coalesce(h.next_attempt_at, :at)
                WHEN h.status <> 'dead' OR h.error_type = 'VersionGap'
                    THEN CASE WHEN h.first_failed_at <= h.updated_at THEN h.first_failed_at ELSE :at END
            END
        FROM holdfast_queue AS h
        WHERE
            h.projection = q.projection AND h.feed = q.feed AND h.lane = q.lane
            AND h.status IN ('pending', 'processing', 'failed', 'dead')
        ORDER BY CASE WHEN CAST(:by_version AS boolean) THEN h.version ELSE 0 END, h.position LIMIT 1
    ),
    (
        SELECT h.first_failed_at IS NOT NULL FROM holdfast_queue AS h
        WHERE
            h.projection = q.projection AND h.feed = q.feed AND h.lane = q.lane
            AND h.status IN ('pending', 'processing', 'failed', 'dead')
        ORDER BY CASE WHEN CAST(:by_version AS boolean) THEN h.version ELSE 0 END, h.position LIMIT 1
    )
FROM holdfast_queue AS q
WHERE
    q.projection = :projection AND q.feed = :feed AND q.lane = :lane
    AND q.status IN ('pending', 'processing', 'failed', 'dead')
GROUP BY q.projection, q.feed, q.lane
ON CONFLICT (projection, feed, lane) DO UPDATE SET
    events = excluded.events, due_at = excluded.due_at, has_failed = excluded.has_failed, token = NULL
RETURNING events
