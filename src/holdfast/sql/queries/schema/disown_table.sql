-- Forgets a table that was dropped.
DELETE FROM holdfast_table WHERE name = :name
