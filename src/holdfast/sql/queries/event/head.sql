-- The largest position that is visible; 0 for an empty journal.
SELECT coalesce(max(position), 0) FROM holdfast_event
