-- Where a projection has begun; NULL if that is not decided yet.
SELECT start_position FROM holdfast_layout WHERE projection = :projection
