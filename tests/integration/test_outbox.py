"""Outbox delivery on every database."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest

from holdfast import App, Event, Policy, Projection, ProjectionFaulted, Retry, Tx, on
from holdfast.clock import SystemClock
from tests.contracts import OutboxContract
from tests.contracts.outbox_samples import AT_ONCE
from tests.contracts.samples import Counted, eventually, fetch, status_of
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class Ahead(SystemClock):
    """The clock of a host that is an hour ahead of everybody."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


class Behind(SystemClock):
    """The clock of a host that is an hour behind everybody."""

    def now(self) -> datetime:
        return super().now() - timedelta(hours=1)


class TestOnSqliteFile(OnSqliteFile, OutboxContract):
    def test_a_writer_whose_clock_is_ahead(
        self, app: App, open_app: Callable[..., App], register: Callable[..., None]
    ) -> None:
        """What it appends and sends is delivered now, and not in an hour."""
        got: list[int] = []
        register()

        @app.sink()
        class Mails(Projection):
            @on("mail")
            def mail(self, event: Event[Any], tx: Tx) -> None:
                got.append(event.data["n"])

        app.migrate()
        writer = open_app(clock=Ahead())
        writer.journal.append("a", [Counted(1)])
        writer.outbox.send("mail", {"n": 2}, key="a")
        app.catch_up()
        assert (self.seen(app), got) == ({"a": [1]}, [2])

    def test_a_worker_whose_clock_is_behind(self, app: App, open_app: Callable[..., App]) -> None:
        """It delivers what others have appended, tries it again, and is seen to be alive."""
        tried: list[int] = []
        worker = open_app(clock=Behind())
        for each in (app, worker):

            @each.projection(delivery="outbox", policy=Policy(on_error=Retry(), backoff=AT_ONCE))
            class Calls(Projection):
                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    tried.append(event.data.n)
                    if len(tried) < 2:
                        raise ValueError("not yet")

        app.migrate()
        app.journal.append("a", [Counted(1)])
        with worker.running():
            eventually(lambda: not app.queue.list())
            assert tried == [1, 1]
            assert status_of(app, "calls").state == "running"
            assert [relay.is_alive for r in app.outbox.report() for relay in r.relays] == [True]
            assert "no_worker" not in [reason.kind for reason in app.explain("calls")]


class TestOnSqliteMemory(OnSqliteMemory, OutboxContract):
    is_shared: ClassVar[bool] = False


class TestOnPostgres(OnPostgres, OutboxContract):
    def test_a_handler_that_ends_the_transaction(self, app: App) -> None:
        """Nothing is delivered before a reset: the rows may be in, and the event is not done."""
        ends = True

        @app.projection(delivery="outbox")
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (n bigint)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute("INSERT INTO sums VALUES (%s)", (event.data.n,))
                if ends:
                    tx.execute("COMMIT")

        app.journal.append("a", [Counted(1)])
        with pytest.raises(ProjectionFaulted, match="ended the transaction itself"):
            app.catch_up()
        ends = False
        for _ in range(2):
            with pytest.raises(ProjectionFaulted, match="holdfast reset sums"):
                app.catch_up()
            status = status_of(app, "sums")
            assert (status.state, status.needs_reset) == ("faulted", True)
        assert next(reason.kind for reason in app.explain("sums")) == "faulted"
        app.reset("sums")
        app.catch_up()
        assert fetch(app, "SELECT n FROM sums") == [(1,)]

    @pytest.mark.parametrize("way", [["COMMIT"], ["COMMIT", "BEGIN"]])
    @pytest.mark.parametrize("calls", [False, True])
    def test_a_handler_that_ends_the_transaction_and_fails(
        self, app: App, way: list[str], calls: bool
    ) -> None:
        """It is not taken for one of which nothing is left, and is not tried again."""
        ends = True

        @app.projection(delivery="outbox", policy=Policy(on_error=Retry()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (n bigint)"}
            calls_out = calls

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute("INSERT INTO sums VALUES (%s)", (event.data.n,))
                if ends:
                    for sql in way:
                        tx.execute(sql)
                    raise ValueError("failed")

        app.journal.append("a", [Counted(1)])
        for match in ("ended the transaction itself", "holdfast reset sums"):
            with pytest.raises(ProjectionFaulted, match=match):
                app.catch_up()
        assert fetch(app, "SELECT n FROM sums") == [(1,)]
        ends = False
        app.reset("sums")
        app.catch_up()
        assert fetch(app, "SELECT n FROM sums") == [(1,)]
