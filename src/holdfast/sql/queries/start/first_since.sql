-- The first event that was recorded at a time or later; clocks of writers may differ, so later ones may be older.
SELECT position FROM holdfast_event WHERE recorded_at >= :at ORDER BY position LIMIT 1
