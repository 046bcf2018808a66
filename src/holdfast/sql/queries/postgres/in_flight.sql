-- PostgreSQL only: the lower bound of each append that has not ended, oldest first.
SELECT
    ((l.classid::bigint & 65535) << 32) | l.objid::bigint AS bound,
    l.pid,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8,
    a.query
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE
    l.locktype = 'advisory'
    AND l.granted
    AND l.mode = 'ShareLock'
    AND l.objsubid = 1
    AND l.classid::bigint >> 16 = x'4846'::bigint
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY bound
