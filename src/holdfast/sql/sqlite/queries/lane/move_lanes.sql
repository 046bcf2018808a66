-- Closed lanes belong to other shards.
-- SQLite differs: one lane at a time.
UPDATE holdfast_lane SET feed = :to_feed WHERE projection = :projection AND feed = :feed AND lane = :lane
