-- How many shards a projection has, and whether that is being changed.
SELECT shards, next_shards, barrier FROM holdfast_layout WHERE projection = :projection
