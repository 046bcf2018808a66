"""Messages for other systems, on each database."""

from tests.contracts import MessageContract
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, MessageContract):
    pass


class TestOnSqliteMemory(OnSqliteMemory, MessageContract):
    pass


class TestOnPostgres(OnPostgres, MessageContract):
    pass
