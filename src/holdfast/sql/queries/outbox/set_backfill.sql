-- The last event of the backfill; appends bring the later ones.
UPDATE holdfast_outbox SET backfill_until = :until
WHERE projection = :projection AND feed = :feed AND backfill_until IS NULL
