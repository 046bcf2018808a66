-- SQLite differs: one writer, and the process's clock. Claims the lanes that have been due longest, until
-- the lease ends. Those whose heads have failed before have a limit of their own.
UPDATE holdfast_lane SET token = :token, due_at = :lease_until
WHERE
    projection = :projection AND feed = :feed
    AND lane IN (
        SELECT * FROM (
            SELECT lane FROM holdfast_lane
            WHERE projection = :projection AND feed = :feed AND has_failed = 0 AND due_at <= :now
            ORDER BY due_at LIMIT :limit
        )
        UNION ALL
        SELECT * FROM (
            SELECT lane FROM holdfast_lane
            WHERE projection = :projection AND feed = :feed AND has_failed = 1 AND due_at <= :now
            ORDER BY due_at LIMIT :again
        )
    )
RETURNING lane
