"""PostgreSQL: its driver, queries and migrations."""
