-- Makes the checkpoint if it is not there.
INSERT INTO holdfast_checkpoint (projection, feed) VALUES (:projection, :feed)
ON CONFLICT (projection, feed) DO NOTHING
