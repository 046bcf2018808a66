-- An operator has a projection go on that has stopped, or waits. Its error stays until there is progress.
UPDATE holdfast_checkpoint
SET
    revision = revision + 1, waiting_until = NULL, waiting_for = NULL,
    state = CASE WHEN state = 'faulted' THEN 'stopped' ELSE state END
WHERE projection = :projection AND NOT needs_reset AND (state = 'faulted' OR waiting_until IS NOT NULL)
RETURNING feed
