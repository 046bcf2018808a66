-- The item of one event.
SELECT id, event_id, status, created_at FROM holdfast_queue
WHERE projection = :projection AND feed = :feed AND position = :position
