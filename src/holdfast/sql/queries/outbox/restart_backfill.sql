-- The backfill brings everything up to here again.
UPDATE holdfast_outbox SET backfill_until = :until WHERE projection = :projection
