-- How many shards a projection has, if nobody has said so before.
INSERT INTO holdfast_layout (projection, shards) VALUES (:projection, :shards)
ON CONFLICT (projection) DO NOTHING
