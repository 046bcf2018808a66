-- SQLite differs: the process's clock. Claims one lane if it is free; with a number of events, only if it is
-- due and exactly that many wait in it.
UPDATE holdfast_lane SET token = :token, due_at = :lease_until
WHERE
    projection = :projection AND feed = :feed AND lane = :lane AND token IS NULL
    AND (:events IS NULL OR (due_at <= :now AND events = :events))
RETURNING lane
