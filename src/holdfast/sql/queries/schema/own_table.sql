-- Records a table's definition.
INSERT INTO holdfast_table (name, projection, definition) VALUES (:name, :projection, :definition)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
