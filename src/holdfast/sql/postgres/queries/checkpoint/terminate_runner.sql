-- PostgreSQL only: ends the connection of the last leader's runner.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity AS a
JOIN holdfast_checkpoint AS c ON c.leader_pid = a.pid AND c.leader_since = a.backend_start
WHERE c.id = :id AND a.pid <> pg_backend_pid() AND a.datname = current_database()
