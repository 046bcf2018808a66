-- The counts begin again at 0.
DELETE FROM holdfast_delivery WHERE projection = :projection
