-- Records the number of shards of a new projection.
INSERT INTO holdfast_layout (projection, shards) VALUES (:projection, :shards)
ON CONFLICT (projection) DO NOTHING
