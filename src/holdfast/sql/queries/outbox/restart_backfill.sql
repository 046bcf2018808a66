-- Everything up to here comes by the backfill again.
UPDATE holdfast_outbox SET backfill_until = :until WHERE projection = :projection
