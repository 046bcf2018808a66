-- A clean end. The epoch keeps it from a successor's row.
UPDATE holdfast_checkpoint
SET state = 'stopped', leader = NULL, leader_pid = NULL, asked_by = NULL
WHERE id = :id AND epoch = :epoch
