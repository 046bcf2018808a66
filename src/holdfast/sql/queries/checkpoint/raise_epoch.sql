-- Fences whoever runs this projection under an epoch.
UPDATE holdfast_checkpoint SET epoch = epoch + 1 WHERE id = :id AND epoch = :epoch RETURNING epoch
