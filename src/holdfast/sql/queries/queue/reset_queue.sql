-- A projection that begins again has an empty queue.
DELETE FROM holdfast_queue WHERE projection = :projection
