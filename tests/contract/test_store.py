"""The store on every database."""

from holdfast.testing.contracts import StoreContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, StoreContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, StoreContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, StoreContract):
    """On a server."""
