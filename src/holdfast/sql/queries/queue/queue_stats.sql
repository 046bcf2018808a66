-- The number and the age of items, by projection, status and error type.
SELECT
    projection,
    CASE WHEN status = 'processing' AND first_failed_at IS NOT NULL THEN 'retrying' ELSE status END,
    coalesce(error_type, ''), count(*), min(created_at)
FROM holdfast_queue
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
