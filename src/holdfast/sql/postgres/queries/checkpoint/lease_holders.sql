-- PostgreSQL only: the connection that holds each projection's lease.
SELECT l.objid::bigint::integer, l.pid
FROM pg_locks AS l
WHERE
    l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
    AND l.classid = 'holdfast_checkpoint'::regclass::oid
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
