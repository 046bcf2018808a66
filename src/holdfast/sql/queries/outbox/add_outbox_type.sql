-- Adds a type that the projection handles. None is removed: processes with older code may be running.
INSERT INTO holdfast_outbox_type (event_type, projection, feed) VALUES (:event_type, :projection, :feed)
ON CONFLICT (event_type, projection, feed) DO NOTHING
