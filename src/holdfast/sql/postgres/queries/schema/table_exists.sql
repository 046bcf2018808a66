-- PostgreSQL differs: its own catalogue.
SELECT 1 FROM pg_class WHERE oid = to_regclass(:quoted)
