-- Adds what ended processes have done to the projection's totals.
UPDATE holdfast_outbox SET applied = applied + :applied, failed = failed + :failed
WHERE projection = :projection AND feed = :feed
