-- SQLite differs: by the process's clock. One lane, if nobody has it and nothing else waits in it.
UPDATE holdfast_lane SET token = :token, due_at = :lease_until
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND token IS NULL AND due_at <= :now AND events = :events
RETURNING lane
