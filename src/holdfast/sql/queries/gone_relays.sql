-- Processes that were not seen for long.
SELECT 1 FROM holdfast_relay
WHERE projection = :projection AND feed = :feed AND seen_at < :before
LIMIT 1
