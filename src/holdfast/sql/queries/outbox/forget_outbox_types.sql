-- Appends no longer put events into the queue for this projection.
DELETE FROM holdfast_outbox_type WHERE projection = :projection
