"""The journal and the store on SQLite and PostgreSQL.

Logic is written once (`journal.py`, `store.py`, `tables.py`, `migrations.py`); a database is a
driver module (`sqlite.py`, `postgres.py`) and its SQL under `queries/` and `migrations/`.
"""
