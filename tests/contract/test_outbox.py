"""Outbox delivery on every database."""

from typing import ClassVar

from holdfast.testing.contracts import OutboxContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, OutboxContract):
    pass


class TestOnSqliteMemory(OnSqliteMemory, OutboxContract):
    is_shared: ClassVar[bool] = False


class TestOnPostgres(OnPostgres, OutboxContract):
    pass
