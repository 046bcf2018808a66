-- A projection that begins again has seen nothing.
DELETE FROM holdfast_stream WHERE projection = :projection
