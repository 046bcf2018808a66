-- PostgreSQL differs: the server's clock, and lanes that are locked are left out. Makes lanes due that were put
-- off by a clock that has been set back since: nothing waits that has not failed yet, or has failed in the
-- future; and no claim lasts longer than its lease.
WITH late AS MATERIALIZED (
    SELECT l.lane FROM holdfast_lane AS l
    WHERE
        l.projection = :projection AND l.feed = :feed AND l.has_failed IN (true, false)
        AND l.due_at > statement_timestamp()
        AND CASE
            WHEN l.token IS NOT NULL
                THEN l.due_at
                    > clock_timestamp() + make_interval(secs => CAST(:lease_seconds AS double precision))
            ELSE EXISTS (
                SELECT 1 FROM holdfast_queue AS q
                WHERE
                    q.projection = l.projection AND q.feed = l.feed
                    AND q.position = (
                        SELECT min(h.position) FROM holdfast_queue AS h
                        WHERE
                            h.projection = l.projection AND h.feed = l.feed AND h.lane = l.lane
                            AND h.status IN ('pending', 'processing', 'failed', 'dead')
                    )
                    AND (q.status = 'pending' OR q.last_failed_at > clock_timestamp())
            )
        END
    FOR UPDATE SKIP LOCKED
)
UPDATE holdfast_lane AS l
SET
    due_at = clock_timestamp()
        + CASE
            WHEN l.token IS NULL THEN interval '0'
            ELSE make_interval(secs => CAST(:lease_seconds AS double precision))
        END
FROM late
WHERE l.projection = :projection AND l.feed = :feed AND l.lane = late.lane
