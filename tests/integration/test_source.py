"""The journal as a source on every database."""

from tests.contracts import SourceContract
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, SourceContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, SourceContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, SourceContract):
    """On a server."""
