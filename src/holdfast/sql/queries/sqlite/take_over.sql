-- SQLite differs: a connection has no process id.
UPDATE holdfast_checkpoint
SET epoch = epoch + 1, state = 'running', leader = :leader
WHERE id = :id AND NOT needs_reset
RETURNING id, projection, feed, position, epoch, state, events_processed
