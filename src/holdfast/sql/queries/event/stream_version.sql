-- The version of a stream; 0 if it does not exist.
SELECT coalesce(max(version), 0) FROM holdfast_event WHERE stream = :stream
