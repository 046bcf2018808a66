-- The brokers could not say before what tells the feed from another one of its name.
UPDATE holdfast_checkpoint SET origin = :origin WHERE id = :id AND epoch = :epoch AND origin = '-'
