-- PostgreSQL differs: the server's clock. Claims one lane if it is free; with a number of events, only if it
-- is due and exactly that many wait in it.
UPDATE holdfast_lane
SET token = :token, due_at = clock_timestamp() + make_interval(secs => CAST(:lease_seconds AS double precision))
WHERE
    projection = :projection AND feed = :feed AND lane = :lane AND token IS NULL
    AND (CAST(:events AS bigint) IS NULL OR (due_at <= clock_timestamp() AND events = :events))
RETURNING lane
