-- When the last event of a stream was recorded: if that is long ago, the stream may begin again.
UPDATE holdfast_stream SET last_at = :at WHERE projection = :projection AND stream = :stream
