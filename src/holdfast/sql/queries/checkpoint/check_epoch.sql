-- Whether the runner may still write, and nobody has changed anything.
SELECT 1 FROM holdfast_checkpoint WHERE id = :id AND epoch = :epoch AND revision = :revision
