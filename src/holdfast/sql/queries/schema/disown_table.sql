-- Forgets a dropped table.
DELETE FROM holdfast_table WHERE name = :name
