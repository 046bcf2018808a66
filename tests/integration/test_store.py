"""The store on every database."""

from tests.contracts import StoreContract
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, StoreContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, StoreContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, StoreContract):
    """On a server."""
