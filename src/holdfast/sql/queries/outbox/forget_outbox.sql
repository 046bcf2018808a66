-- It is delivered by the log from now on.
DELETE FROM holdfast_outbox WHERE projection = :projection
