-- The tables that a projection owns.
SELECT name, definition FROM holdfast_table WHERE projection = :projection ORDER BY name
