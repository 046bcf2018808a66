-- Ends a pause.
UPDATE holdfast_checkpoint
SET revision = revision + 1, paused_at = NULL, paused_by = NULL, paused_note = NULL
WHERE projection = :projection AND paused_by IS NOT NULL
RETURNING feed
