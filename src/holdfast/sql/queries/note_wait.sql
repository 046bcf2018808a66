-- Why the projection does not go on just now, for those who ask.
UPDATE holdfast_checkpoint SET waiting_until = :until, waiting_for = :reason
WHERE id = :id AND epoch = :epoch
