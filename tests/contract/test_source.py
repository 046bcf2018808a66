"""The journal as a source on every database."""

from holdfast.testing.contracts import SourceContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, SourceContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, SourceContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, SourceContract):
    """On a server."""
