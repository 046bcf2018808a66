-- Appends no longer put anything into the queue for it.
DELETE FROM holdfast_outbox_type WHERE projection = :projection
