INSERT INTO holdfast_outbox_type (event_type, projection, feed) VALUES (:event_type, :projection, :feed)
