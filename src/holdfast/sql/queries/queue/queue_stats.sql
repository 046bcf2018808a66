-- The number and the age of items, by projection, status and error type.
SELECT projection, status, coalesce(error_type, ''), count(*), min(created_at)
FROM holdfast_queue
GROUP BY projection, status, coalesce(error_type, '')
ORDER BY projection, status, coalesce(error_type, '')
