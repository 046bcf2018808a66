-- PostgreSQL differs: its own catalogue. The columns of a table, and which of them an insert has to name.
SELECT CAST(attname AS text), attnotnull AND NOT atthasdef
FROM pg_attribute
WHERE attrelid = to_regclass(:quoted) AND attnum > 0 AND NOT attisdropped
