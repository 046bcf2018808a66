-- The processes that deliver a projection, or have done so.
SELECT
    projection, feed, ended_at, process, started_at, seen_at, applied, failed, looked, unreadable,
    looked_seconds
FROM holdfast_relay
ORDER BY projection, started_at
