"""Projections' tables on every database."""

from tests.contracts import TableContract
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, TableContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, TableContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, TableContract):
    """On a server."""
