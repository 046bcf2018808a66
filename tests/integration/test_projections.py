"""Projections on every database, from the journal to the rows."""

from typing import ClassVar

import pytest

from holdfast import App, Event, Projection, ProjectionFaulted, Tx, on
from tests.contracts import FaultContract, FoldingContract, HandlingContract, RunningContract
from tests.contracts.samples import Counted, fetch, status_of
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


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


class TestFaultsOnSqliteFile(OnSqliteFile, FaultContract):
    pass


class TestFaultsOnSqliteMemory(OnSqliteMemory, FaultContract):
    pass


class TestFaultsOnPostgres(OnPostgres, FaultContract):
    def test_what_only_the_commit_refuses_is_found(self, app: App) -> None:
        ddl = "CREATE TABLE counts (n int, CONSTRAINT one UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)"

        @app.projection
        class Counts(Projection):
            tables: ClassVar = {"counts": ddl}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute("INSERT INTO counts VALUES (%s)", (event.data.n,))

        appended = app.journal.append("a", [Counted(n) for n in (1, 2, 3, 2, 4)])
        with pytest.raises(ProjectionFaulted, match="UniqueViolation"):
            app.catch_up()
        error = status_of(app, "counts").last_error
        assert error is not None
        assert error.position == appended.positions[3]
        assert fetch(app, "SELECT n FROM counts ORDER BY n") == [(1,), (2,), (3,)]


class TestRunningOnSqliteFile(OnSqliteFile, RunningContract):
    pass


class TestRunningOnSqliteMemory(OnSqliteMemory, RunningContract):
    pass


class TestRunningOnPostgres(OnPostgres, RunningContract):
    pass
