-- PostgreSQL only: the sessions with open appends that may still fill holes before a position.
SELECT DISTINCT
    l.pid, a.usename, a.application_name, a.state, a.xact_start, a.query
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE
    l.locktype = 'advisory'
    AND l.granted
    AND l.mode = 'ShareLock'
    AND l.objsubid = 1
    AND l.classid::bigint >> 16 = 'holdfast_event'::regclass::oid::bigint & 32767::bigint
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (((l.classid::bigint & 65535::bigint) << 32) | l.objid::bigint) < :before
ORDER BY a.xact_start
