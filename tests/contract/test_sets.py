"""SqlProjections, on every database."""

from holdfast.testing.contracts import SetContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, SetContract):
    pass


class TestOnSqliteMemory(OnSqliteMemory, SetContract):
    pass


class TestOnPostgres(OnPostgres, SetContract):
    pass
