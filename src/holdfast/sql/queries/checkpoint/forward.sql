-- On to a later position, under a new epoch that fences the runner that has it now. What is passed is lost.
UPDATE holdfast_checkpoint
SET
    position = :position, epoch = epoch + 1, revision = revision + 1, state = 'stopped',
    last_event_id = NULL, last_event_type = NULL,
    error_type = NULL, error_message = NULL, error_stacktrace = NULL, error_at = NULL,
    error_position = NULL, error_event_id = NULL, error_event_type = NULL,
    waiting_until = NULL, waiting_for = NULL,
    unclean_ends = 0, mark_position = NULL, mark_attempts = 0
WHERE projection = :projection AND feed = :feed AND position < :position
RETURNING position
