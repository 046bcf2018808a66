-- Writes the number of shards, and a change of it in progress.
UPDATE holdfast_layout SET shards = :shards, next_shards = :next_shards, barrier = :barrier
WHERE projection = :projection
