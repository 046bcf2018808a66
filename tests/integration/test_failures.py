"""Failing events under every policy, on every database."""

from typing import Any, ClassVar

import pytest

from holdfast import App, Event, Park, Policy, Projection, ProjectionFaulted, Tx, on
from tests.contracts import FailureContract
from tests.contracts.samples import Counted, fetch
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory

OPEN_TRANSACTIONS = """
SELECT query FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""


class TestOnSqliteFile(OnSqliteFile, FailureContract):
    @pytest.mark.parametrize("requeued", [False, True])
    def test_an_event_that_rolls_everything_back(self, app: App, requeued: bool) -> None:
        broken = True

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen integer UNIQUE)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                n = event.data.n
                tx.execute("INSERT INTO sums VALUES (?, ?)", (event.stream, str(n)))
                if broken and n == 11:
                    tx.execute("INSERT OR ROLLBACK INTO sums VALUES (?, ?)", ("again", str(n)))

        self.append(app, 1, 2, 11, 12, 21)
        app.catch_up()
        assert fetch(app, "SELECT seen FROM sums ORDER BY seen") == [(1,), (2,), (12,)]
        broken = requeued
        self.requeue_all(app)
        if requeued:
            assert fetch(app, "SELECT seen FROM sums ORDER BY seen") == [(1,), (2,), (12,)]
            broken = False
            self.requeue_all(app)
        seen = fetch(app, "SELECT seen FROM sums ORDER BY seen")
        assert seen == [(1,), (2,), (11,), (12,), (21,)]


class TestOnSqliteMemory(OnSqliteMemory, FailureContract):
    pass


class TestOnPostgres(OnPostgres, FailureContract):
    endless: ClassVar[str] = "SELECT pg_sleep(3600)"

    def check_nothing_is_held(self, app: App) -> None:
        assert fetch(app, OPEN_TRANSACTIONS) == []

    def test_a_transaction_that_was_ended_long_before_is_noticed(self, app: App) -> None:
        @app.projection
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (seen integer)"}

            @on(Counted)
            def counted(self, event: Event[Any], tx: Tx) -> None:
                tx.execute("INSERT INTO sums VALUES (%s)", (event.data.n,))
                if event.data.n == 3:
                    tx.execute("COMMIT; BEGIN")

        app.journal.append("a", [Counted(n) for n in range(1, 400)])
        for _ in range(2):
            with pytest.raises(ProjectionFaulted, match="holdfast reset sums"):
                app.catch_up()
        assert fetch(app, "SELECT count(*), count(DISTINCT seen) FROM sums") == [(3, 3)]

    @pytest.mark.parametrize("way", ["COMMIT", "COMMIT; BEGIN", "ROLLBACK", "ROLLBACK; BEGIN"])
    def test_no_policy_forgives_a_transaction_that_was_ended(self, app: App, way: str) -> None:
        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen integer)"}

            @on(Counted)
            def counted(self, event: Event[Any], tx: Tx) -> None:
                tx.execute("INSERT INTO sums VALUES (%s, %s)", (event.stream, event.data.n))
                if event.data.n == 11:
                    tx.execute(way)
                    raise ValueError("too late")

        self.append(app, 1, 2, 11, 12)
        with pytest.raises(ProjectionFaulted, match="holdfast reset sums"):
            app.catch_up()
        before = fetch(app, "SELECT seen FROM sums ORDER BY seen")
        with pytest.raises(ProjectionFaulted, match="holdfast reset sums"):
            app.catch_up()
        assert fetch(app, "SELECT seen FROM sums ORDER BY seen") == before
        assert app.queue.list() == []
