-- How much is in the queue, by what an operator asks first.
SELECT projection, status, coalesce(error_type, ''), count(*), min(created_at)
FROM holdfast_queue
GROUP BY projection, status, coalesce(error_type, '')
ORDER BY projection, status, coalesce(error_type, '')
