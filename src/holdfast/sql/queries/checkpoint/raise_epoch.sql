-- Fences the runner that leads under this epoch.
UPDATE holdfast_checkpoint SET epoch = epoch + 1 WHERE id = :id AND epoch = :epoch RETURNING epoch
