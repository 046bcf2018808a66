"""The journal on every database."""

from holdfast.testing.contracts import JournalContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, JournalContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, JournalContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, JournalContract):
    """On a server."""
