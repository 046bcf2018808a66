-- A shard begins where the earlier ones have ended.
UPDATE holdfast_checkpoint SET position = :position, events_processed = :events
WHERE projection = :projection AND feed = :feed
