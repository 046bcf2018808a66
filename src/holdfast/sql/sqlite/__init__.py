"""SQLite: its driver, queries and migrations."""
