"""Leases on every database."""

from tests.contracts import LeaseContract
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, LeaseContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, LeaseContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, LeaseContract):
    """On a server."""
