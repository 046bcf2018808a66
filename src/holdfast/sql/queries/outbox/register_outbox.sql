-- A projection that is delivered by the queue from now on; nothing changes for one that is known.
INSERT INTO holdfast_outbox (projection, feed, mode) VALUES (:projection, :feed, :mode)
ON CONFLICT (projection, feed) DO NOTHING
RETURNING mode
