-- A shard begins where the ones before it have ended.
UPDATE holdfast_checkpoint SET position = :position, events_processed = :events
WHERE projection = :projection AND feed = :feed
