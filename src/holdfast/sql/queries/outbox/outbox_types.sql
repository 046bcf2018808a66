-- The event types that appends put into the queue for a projection.
SELECT event_type FROM holdfast_outbox_type WHERE projection = :projection AND feed = :feed
ORDER BY event_type
