-- SQLite differs: by the process's clock. One lane, if nobody has it; where a number is given, only if
-- exactly so many events wait in it.
UPDATE holdfast_lane SET token = :token, due_at = :lease_until
WHERE
    projection = :projection AND feed = :feed AND lane = :lane AND token IS NULL AND due_at <= :now
    AND (:events IS NULL OR events = :events)
RETURNING lane
