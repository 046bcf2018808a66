-- SQLite differs: one lane at a time. Gives the items of lanes to other shards.
UPDATE holdfast_queue SET feed = :to_feed WHERE projection = :projection AND feed = :feed AND lane = :lane
