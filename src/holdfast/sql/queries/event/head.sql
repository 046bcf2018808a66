-- The largest visible position; 0 for an empty journal.
SELECT coalesce(max(position), 0) FROM holdfast_event
