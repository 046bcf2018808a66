-- Counts the results of attempts, in their transaction.
INSERT INTO holdfast_delivery AS d (
    projection, feed, slot, applied, failed, last_event_id, last_event_type, last_processed_at
)
VALUES (:projection, :feed, :slot, :applied, :failed, :event_id, :event_type, :at)
ON CONFLICT (projection, feed, slot) DO UPDATE SET
    applied = d.applied + excluded.applied, failed = d.failed + excluded.failed,
    last_event_id = coalesce(excluded.last_event_id, d.last_event_id),
    last_event_type = coalesce(excluded.last_event_type, d.last_event_type),
    last_processed_at = coalesce(excluded.last_processed_at, d.last_processed_at)
