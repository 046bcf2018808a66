-- Deletes done items that were kept long enough, oldest first.
DELETE FROM holdfast_queue
WHERE id IN (
    SELECT id FROM holdfast_queue
    WHERE status = 'done' AND projection = :projection AND feed = :feed AND updated_at < :before
    ORDER BY updated_at LIMIT :limit
)
RETURNING id
