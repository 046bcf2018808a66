-- How many shards a projection has.
UPDATE holdfast_layout SET shards = :shards, next_shards = :next_shards, barrier = :barrier
WHERE projection = :projection
