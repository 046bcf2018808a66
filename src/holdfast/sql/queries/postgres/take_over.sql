-- PostgreSQL differs: the leader's connection is kept, so that an operator can end it.
UPDATE holdfast_checkpoint
SET epoch = epoch + 1, state = 'running', leader = :leader, leader_pid = pg_backend_pid()
WHERE id = :id
RETURNING id, projection, feed, position, epoch, state, events_processed
