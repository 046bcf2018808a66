-- SQLite differs: a connection has no process id.
UPDATE holdfast_checkpoint
SET epoch = epoch + 1, state = 'running', leader = :leader
WHERE id = :id
RETURNING id, projection, feed, position, epoch, state, events_processed
