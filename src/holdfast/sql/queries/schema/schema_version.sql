-- The number of the last migration that ran.
SELECT version FROM holdfast_schema
