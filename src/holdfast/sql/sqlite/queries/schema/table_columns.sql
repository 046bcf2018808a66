-- SQLite differs: its own catalogue. The columns of a table, and which of them an insert has to name.
SELECT name, "notnull" <> 0 AND dflt_value IS NULL
FROM pragma_table_info(:name) WHERE :quoted IS NOT NULL
