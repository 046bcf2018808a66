-- The position of a stream's last event.
SELECT position FROM holdfast_event WHERE stream = :stream ORDER BY version DESC LIMIT 1
