-- PostgreSQL only: the session that holds the lock of a stream. If there is none, the one with the oldest
-- transaction that has changed or locked our tables.
SELECT a.pid, a.usename, a.application_name, a.state,
    CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS double precision)
FROM pg_stat_activity AS a
JOIN pg_locks AS l ON l.pid = a.pid
WHERE
    l.granted AND a.pid <> pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    AND (
        l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = CAST(1212568404 AS oid)
        AND l.objid = CAST(hashtext(CAST(:stream AS text)) AS oid)
        OR l.mode <> 'AccessShareLock' AND l.relation IN (
            CAST(CAST('holdfast_event' AS regclass) AS oid),
            CAST(CAST('holdfast_queue' AS regclass) AS oid),
            CAST(CAST('holdfast_lane' AS regclass) AS oid)
        )
    )
ORDER BY CASE WHEN l.locktype = 'advisory' THEN 0 ELSE 1 END, a.xact_start
LIMIT 1
