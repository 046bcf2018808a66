-- PostgreSQL differs: the server's clock, and lanes that another worker is claiming are left out. Claims
-- the lanes that have been due longest, until the lease ends. Those whose heads have failed before have a
-- limit of their own.
UPDATE holdfast_lane AS l
SET token = :token, due_at = clock_timestamp() + make_interval(secs => CAST(:lease_seconds AS double precision))
WHERE
    l.projection = :projection AND l.feed = :feed
    AND l.lane = ANY (
        ARRAY(
            SELECT d.lane FROM holdfast_lane AS d
            WHERE
                d.projection = :projection AND d.feed = :feed AND NOT d.has_failed
                AND d.due_at <= statement_timestamp()
            ORDER BY d.due_at LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) OPERATOR(pg_catalog.||) ARRAY(
            SELECT d.lane FROM holdfast_lane AS d
            WHERE
                d.projection = :projection AND d.feed = :feed AND d.has_failed
                AND d.due_at <= statement_timestamp()
            ORDER BY d.due_at LIMIT :again
            FOR UPDATE SKIP LOCKED
        )
    )
RETURNING l.lane
