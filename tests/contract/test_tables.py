"""Projections' tables on every database."""

from holdfast.testing.contracts import TableContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, TableContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, TableContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, TableContract):
    """On a server."""
