-- All lanes are open when a projection begins again.
DELETE FROM holdfast_lane WHERE projection = :projection
