"""Several processes on one database. One in memory can't be shared."""

from tests.contracts import SharingContract
from tests.integration.databases import OnPostgres, OnSqliteFile


class TestOnSqliteFile(OnSqliteFile, SharingContract):
    """In a file, with WAL."""


class TestOnPostgres(OnPostgres, SharingContract):
    """On a server."""
