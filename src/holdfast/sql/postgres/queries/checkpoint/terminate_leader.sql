-- PostgreSQL only: ends the connection that holds the lease, and the runner's.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity AS a
WHERE
    a.pid <> pg_backend_pid()
    AND a.datname = current_database()
    AND a.pid IN (
        SELECT l.pid
        FROM pg_locks AS l
        WHERE
            l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
            AND l.classid = 'holdfast_checkpoint'::regclass::oid AND l.objid::bigint = :id
            AND l.database = a.datid
        UNION ALL
        SELECT c.leader_pid FROM holdfast_checkpoint AS c
        WHERE c.id = :id AND c.leader_since = a.backend_start
    )
