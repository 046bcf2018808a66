-- SQLite differs: one lane at a time. Gives closed lanes to other shards.
UPDATE holdfast_lane SET feed = :to_feed WHERE projection = :projection AND feed = :feed AND lane = :lane
