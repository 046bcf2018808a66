-- One more type that it handles. None is taken away: processes with older code may be about.
INSERT INTO holdfast_outbox_type (event_type, projection, feed) VALUES (:event_type, :projection, :feed)
ON CONFLICT (event_type, projection, feed) DO NOTHING
