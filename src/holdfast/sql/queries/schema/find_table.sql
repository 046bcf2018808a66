-- The owner of a table, and the definition under which its rows were written.
SELECT projection, definition FROM holdfast_table WHERE name = :name
