-- Ends outbox delivery of a projection.
DELETE FROM holdfast_outbox WHERE projection = :projection
