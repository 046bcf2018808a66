-- Whether the runner may still write: no takeover, and no change by an operator.
SELECT 1 FROM holdfast_checkpoint WHERE id = :id AND epoch = :epoch AND revision = :revision
