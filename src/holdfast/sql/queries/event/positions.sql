-- The next positions.
SELECT position FROM holdfast_event WHERE position > :after ORDER BY position LIMIT :limit
