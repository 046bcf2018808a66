-- Decides where a projection begins, once.
UPDATE holdfast_layout SET start_position = :position WHERE projection = :projection
