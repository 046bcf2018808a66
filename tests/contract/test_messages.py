"""Messages for other systems, on each database."""

from holdfast.testing.contracts import MessageContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, MessageContract):
    pass


class TestOnSqliteMemory(OnSqliteMemory, MessageContract):
    pass


class TestOnPostgres(OnPostgres, MessageContract):
    pass
