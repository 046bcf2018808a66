"""Leases on every database."""

from holdfast.testing.contracts import LeaseContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, LeaseContract):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, LeaseContract):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, LeaseContract):
    """On a server."""
