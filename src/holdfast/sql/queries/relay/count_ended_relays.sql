-- What processes that are gone have done is counted with the rest.
UPDATE holdfast_outbox SET applied = applied + :applied, failed = failed + :failed
WHERE projection = :projection AND feed = :feed
