-- Outlives restarts. The new revision keeps a runner that has not seen the pause from committing.
UPDATE holdfast_checkpoint
SET revision = revision + 1, paused_at = :at, paused_by = :by, paused_note = :note
WHERE projection = :projection AND paused_by IS NULL
RETURNING feed
