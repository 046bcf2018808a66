-- SQLite differs: its own clock, so that all processes mean the same time. A process is alive, or has just
-- ended, and what it has done so far.
INSERT INTO holdfast_relay (
    worker, projection, feed, process, started_at, seen_at, applied, failed, looked, unreadable,
    looked_seconds, ended_at
)
VALUES (
    :worker, :projection, :feed, :process,
    strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'), strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now'),
    :applied, :failed, :looked, :unreadable, :looked_seconds,
    CASE WHEN :ends THEN strftime('%Y-%m-%dT%H:%M:%f000+00:00', 'now') END
)
ON CONFLICT (worker) DO UPDATE SET
    seen_at = excluded.seen_at, applied = excluded.applied, failed = excluded.failed,
    looked = excluded.looked, unreadable = excluded.unreadable,
    looked_seconds = excluded.looked_seconds, ended_at = excluded.ended_at
