-- PostgreSQL differs: its own catalogue.
SELECT 1 FROM pg_class WHERE oid = CAST(to_regclass(CAST(:quoted AS text)) AS oid)
