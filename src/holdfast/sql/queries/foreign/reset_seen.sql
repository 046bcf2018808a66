-- A projection that begins again has seen nothing.
DELETE FROM holdfast_seen WHERE projection = :projection
