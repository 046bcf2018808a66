-- PostgreSQL only: the sessions that some others wait for, and how many of those.
SELECT w.waiting, w.pid, a.usename, a.application_name, a.state,
    CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS double precision)
FROM (
    SELECT b.pid, count(*) AS waiting
    FROM pg_catalog.unnest(CAST(:pids AS integer[])) AS o (pid)
    CROSS JOIN LATERAL pg_catalog.unnest(pg_blocking_pids(o.pid)) AS b (pid)
    WHERE b.pid <> ALL (CAST(:pids AS integer[]))
    GROUP BY b.pid
) AS w
LEFT JOIN pg_stat_activity AS a ON a.pid = w.pid
ORDER BY w.waiting DESC, w.pid
LIMIT 3
