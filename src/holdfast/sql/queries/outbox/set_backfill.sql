-- The last event that the backfill has to bring; later ones come by themselves.
UPDATE holdfast_outbox SET backfill_until = :until
WHERE projection = :projection AND feed = :feed AND backfill_until IS NULL
