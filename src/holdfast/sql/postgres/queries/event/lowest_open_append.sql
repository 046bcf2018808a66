-- PostgreSQL only: the smallest lower bound of all open appends; NULL if there is none.
SELECT min(((l.classid::bigint & 65535::bigint) << 32) | l.objid::bigint)
FROM pg_locks AS l
WHERE
    l.locktype = 'advisory'
    AND l.granted
    AND l.mode = 'ShareLock'
    AND l.objsubid = 1
    AND l.classid::bigint >> 16 = 'holdfast_event'::regclass::oid::bigint & 32767::bigint
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
