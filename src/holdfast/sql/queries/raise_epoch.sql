-- Fences whoever runs this projection now.
UPDATE holdfast_checkpoint SET epoch = epoch + 1 WHERE id = :id RETURNING epoch
