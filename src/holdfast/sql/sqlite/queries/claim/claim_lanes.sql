-- SQLite differs: one writer, and the process's clock. Claims the lanes that have been due longest, until
-- the lease ends.
UPDATE holdfast_lane SET token = :token, due_at = :lease_until
WHERE
    projection = :projection AND feed = :feed
    AND lane IN (
        SELECT lane FROM holdfast_lane
        WHERE projection = :projection AND feed = :feed AND due_at <= :now
        ORDER BY due_at LIMIT :limit
    )
RETURNING lane
