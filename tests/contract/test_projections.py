"""Projections on every database, from the journal to the rows."""

from holdfast.testing.contracts.folding import FoldingContract
from holdfast.testing.contracts.handling import HandlingContract
from tests.contract.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestFoldingOnSqliteFile(OnSqliteFile, FoldingContract):
    pass


class TestFoldingOnSqliteMemory(OnSqliteMemory, FoldingContract):
    pass


class TestFoldingOnPostgres(OnPostgres, FoldingContract):
    pass


class TestHandlingOnSqliteFile(OnSqliteFile, HandlingContract):
    pass


class TestHandlingOnSqliteMemory(OnSqliteMemory, HandlingContract):
    pass


class TestHandlingOnPostgres(OnPostgres, HandlingContract):
    pass
