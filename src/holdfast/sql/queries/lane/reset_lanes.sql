-- A projection that begins again has no closed lanes.
DELETE FROM holdfast_lane WHERE projection = :projection
