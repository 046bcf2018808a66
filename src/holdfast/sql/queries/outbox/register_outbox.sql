-- Registers an outbox projection; a known one stays as it is.
INSERT INTO holdfast_outbox (projection, feed, mode) VALUES (:projection, :feed, :mode)
ON CONFLICT (projection, feed) DO NOTHING
RETURNING mode
