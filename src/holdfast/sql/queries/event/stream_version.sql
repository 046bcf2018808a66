-- The version a stream is at; 0 if it is not there.
SELECT coalesce(max(version), 0) FROM holdfast_event WHERE stream = :stream
