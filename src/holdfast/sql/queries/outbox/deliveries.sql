-- The counted attempts, and the last event that each row has counted.
SELECT projection, feed, applied, failed, last_event_id, last_event_type, last_processed_at
FROM holdfast_delivery
