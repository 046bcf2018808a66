-- PostgreSQL differs: its own clock, so that all processes mean the same time. A process is alive, and what it
-- has done so far.
INSERT INTO holdfast_relay (
    worker, projection, feed, process, started_at, seen_at, applied, failed, looked, unreadable,
    looked_seconds
)
VALUES (
    :worker, :projection, :feed, :process, clock_timestamp(), clock_timestamp(),
    :applied, :failed, :looked, :unreadable, :looked_seconds
)
ON CONFLICT (worker) DO UPDATE SET
    seen_at = excluded.seen_at, applied = excluded.applied, failed = excluded.failed,
    looked = excluded.looked, unreadable = excluded.unreadable,
    looked_seconds = excluded.looked_seconds
