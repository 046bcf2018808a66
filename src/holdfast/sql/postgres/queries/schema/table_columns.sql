-- PostgreSQL differs: its own catalogue. The columns of a table, and which of them an insert has to name.
SELECT CAST(attname AS text), attnotnull AND NOT atthasdef
FROM pg_attribute
WHERE attrelid = CAST(to_regclass(CAST(:quoted AS text)) AS oid) AND attnum > 0 AND NOT attisdropped
