"""The journal and the store on SQLite and PostgreSQL."""
