-- The layout, locked until the transaction ends.
UPDATE holdfast_layout SET shards = shards WHERE projection = :projection
RETURNING shards, next_shards, barrier
