-- PostgreSQL differs: the leader's connection is kept, so that an operator can end it.
UPDATE holdfast_checkpoint
SET
    epoch = epoch + 1,
    state = 'running',
    leader = :leader,
    leader_pid = pg_backend_pid(),
    leader_since = (SELECT a.backend_start FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid())
WHERE id = :id AND NOT needs_reset
RETURNING id, projection, feed, position, epoch, state, events_processed
