-- What was kept of the event reads otherwise than when it came into the queue.
UPDATE holdfast_queue SET stream = :stream, version = :version, event_type = :event_type WHERE id = :id
