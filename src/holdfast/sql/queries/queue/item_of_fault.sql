-- What has become of the event that stopped a projection.
SELECT id, status, created_at FROM holdfast_queue
WHERE projection = :projection AND feed = :feed AND position = :position
