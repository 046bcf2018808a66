-- Who owns a table, and under which definition its rows were written.
SELECT projection, definition FROM holdfast_table WHERE name = :name
