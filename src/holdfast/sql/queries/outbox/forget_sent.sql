-- Deletes ids of messages that were sent long ago, oldest first.
DELETE FROM holdfast_sent
WHERE (id, topic) IN (
    SELECT id, topic FROM holdfast_sent WHERE sent_at < :before ORDER BY sent_at LIMIT :limit
)
