-- PostgreSQL differs: records the leader's connection, so that an operator can end it.
UPDATE holdfast_checkpoint
SET
    leader_pid = pg_backend_pid(),
    leader_since = (SELECT a.backend_start FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid())
WHERE id = :id AND epoch = :epoch
