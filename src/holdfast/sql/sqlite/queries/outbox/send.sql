-- SQLite differs: a trigger does the rest. Returns nothing if no sink takes the topic.
INSERT INTO holdfast_message (topic, key, id, data, metadata, sent_at, once)
SELECT :topic, :key, :id, :data, :metadata, :at, :once
WHERE EXISTS (
    SELECT 1 FROM holdfast_outbox_type WHERE feed = 'messages' AND event_type IN (:topic, '*')
)
RETURNING position
