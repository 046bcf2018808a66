-- What tells the feed from another one of its name.
SELECT origin FROM holdfast_checkpoint WHERE id = :id AND epoch = :epoch
