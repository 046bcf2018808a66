"""The journal on every database."""

from tests.contracts import JournalContract
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, JournalContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, JournalContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, JournalContract):
    """On a server."""
