-- Whether the runner may still write.
SELECT 1 FROM holdfast_checkpoint WHERE id = :id AND epoch = :epoch
