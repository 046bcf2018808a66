-- The number of shards, and a change of it in progress.
SELECT shards, next_shards, barrier FROM holdfast_layout WHERE projection = :projection
