-- The tables of a projection.
SELECT name, definition FROM holdfast_table WHERE projection = :projection ORDER BY name
