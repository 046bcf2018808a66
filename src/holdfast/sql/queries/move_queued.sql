-- A lane belongs to another shard.
UPDATE holdfast_queue SET feed = :to_feed WHERE projection = :projection AND feed = :feed AND lane = :lane
