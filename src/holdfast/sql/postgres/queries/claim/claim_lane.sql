-- PostgreSQL differs: by the server's clock. One lane, if nobody has it; where a number is given, only
-- if exactly so many events wait in it.
UPDATE holdfast_lane
SET token = :token, due_at = clock_timestamp() + make_interval(secs => :lease_seconds)
WHERE
    projection = :projection AND feed = :feed AND lane = :lane
    AND token IS NULL AND due_at <= clock_timestamp()
    AND (CAST(:events AS bigint) IS NULL OR events = :events)
RETURNING lane
