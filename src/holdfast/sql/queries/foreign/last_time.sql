-- When the last event of a stream was recorded.
SELECT last_at FROM holdfast_stream WHERE projection = :projection AND stream = :stream
