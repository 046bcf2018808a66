"""Whose fault is it? The store's: wait and try again. An event's: stop there, and say so.

An event whose handler ends its own connection looks like a failing store, until it has happened at
the same event a few times while the store otherwise answers.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar

import psycopg
import pytest

from holdfast import App, Backoff, Event, Poll, Projection, ProjectionFaulted, Tx, on
from holdfast.runtime.signals import Faulted, PollFailed, Signal
from tests.support.postgres import PostgresServer, wait_until
from tests.world.app import PROJECTIONS, Moved, build_app
from tests.world.checks import check_all
from tests.world.progress import await_arrival

QUICK = Backoff(delay_seconds=0.01, max_delay_seconds=0.05)

Handle = Callable[[Event[Moved], Tx], None]


def ledger_app(url: str, handle: Handle, *, poll: Poll | None = None) -> App:
    """One projection that notes each event, and then calls `handle`."""
    app = App(url)

    @app.projection(poll=poll or Poll(failure_backoff=QUICK))
    class Noted(Projection):
        tables: ClassVar = {"noted": "CREATE TABLE noted (position bigint)"}

        @on(Moved)
        def moved(self, event: Event[Moved], tx: Tx) -> None:
            tx.execute("INSERT INTO noted VALUES (%s)", (event.position,))
            handle(event, tx)

    return app


def cut_own_connection(tx: Tx) -> None:
    tx.fetch("SELECT pg_terminate_backend(pg_backend_pid())")


def noted(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT position FROM noted ORDER BY 1")]


@pytest.mark.parametrize("at", [1, 4, 10])
def test_an_event_that_always_loses_the_connection_is_blamed(postgres_url: str, at: int) -> None:
    tried: list[int] = []

    def handle(event: Event[Moved], tx: Tx) -> None:
        tried.append(event.position)
        if event.position == at:
            cut_own_connection(tx)

    with ledger_app(postgres_url, handle) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        with pytest.raises(ProjectionFaulted, match=f"at position {at} on 'Moved' event"):
            app.catch_up(timeout_seconds=60)
        assert noted(postgres_url) == list(range(1, at))
        assert tried.count(at) == 3
        (status,) = app.status()
        assert (status.position, status.events_processed) == (at - 1, at - 1)


def test_the_blame_outlives_the_process(postgres_url: str) -> None:
    with ledger_app(postgres_url, lambda _, tx: cut_own_connection(tx)) as app:
        app.journal.append("account-1", [Moved(1)])
        with pytest.raises(ProjectionFaulted):
            app.catch_up(timeout_seconds=60)
    with ledger_app(postgres_url, lambda _, tx: None) as app:
        (status,) = app.status()
        assert status.state == "faulted"
        assert status.last_error is not None
        assert status.last_error.position == 1


def test_an_event_that_loses_the_connection_twice_is_not_blamed(postgres_url: str) -> None:
    tried: list[int] = []

    def handle(event: Event[Moved], tx: Tx) -> None:
        tried.append(event.position)
        if event.position == 4 and tried.count(4) < 3:
            cut_own_connection(tx)

    with ledger_app(postgres_url, handle) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        app.catch_up(timeout_seconds=60)
        assert noted(postgres_url) == list(range(1, 11))
        assert app.status()[0].events_processed == 10


def test_failures_with_progress_between_them_are_not_consecutive(postgres_url: str) -> None:
    """Two losses at every other event: ten in all, which is the limit, but never three in a row."""
    tried: list[int] = []

    def handle(event: Event[Moved], tx: Tx) -> None:
        tried.append(event.position)
        if tried.count(event.position) < 3 and event.position % 2:
            cut_own_connection(tx)

    with ledger_app(postgres_url, handle) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        app.catch_up(timeout_seconds=60)
        assert noted(postgres_url) == list(range(1, 11))


def test_a_swallowed_loss_of_the_connection_is_noticed(postgres_url: str) -> None:
    tried: list[int] = []

    def handle(event: Event[Moved], tx: Tx) -> None:
        tried.append(event.position)
        if event.position == 4 and tried.count(4) == 1:
            with pytest.raises(psycopg.OperationalError):
                cut_own_connection(tx)

    with ledger_app(postgres_url, handle) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        app.catch_up(timeout_seconds=60)
        assert noted(postgres_url) == list(range(1, 11))


def test_deadlocks_and_lock_timeouts_are_nobodys_fault(postgres_url: str) -> None:
    """More of them in a row than strikes: the same work may succeed the next time."""
    tried: list[int] = []

    def handle(event: Event[Moved], tx: Tx) -> None:
        tried.append(event.position)
        if event.position == 4 and tried.count(4) <= 5:
            code = "40P01" if tried.count(4) % 2 else "55P03"
            tx.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")

    with ledger_app(postgres_url, handle) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        app.catch_up(timeout_seconds=60)
        assert noted(postgres_url) == list(range(1, 11))


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=True) as server:
        yield server


def listening(app: App) -> list[Signal]:
    signals: list[Signal] = []
    app.listen(signals.append)
    return signals


def failures(signals: list[Signal], projection: str) -> list[PollFailed]:
    return [s for s in signals if isinstance(s, PollFailed) and s.projection == projection]


def test_a_database_away_at_start_is_awaited(server: PostgresServer) -> None:
    url = server.create_database()
    server.stop()
    poll = Poll(max_consecutive_failures=None, failure_backoff=QUICK)
    with build_app(url, poll=poll) as app:
        signals = listening(app)
        with app.running() as running:
            for name in PROJECTIONS:
                await_failures(signals, name, 15)
            assert running.faulted == {}
            server.start()
            app.journal.append("account-1", [Moved(1)] * 10)
            await_arrival(url)
    check_all(url, complete=True)


def test_a_database_that_stays_away_ends_the_runner(server: PostgresServer) -> None:
    url = server.create_database()
    poll = Poll(max_consecutive_failures=4, failure_backoff=QUICK)
    with build_app(url, poll=poll) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        signals = listening(app)
        with app.running() as running:
            await_arrival(url)
            server.kill()
            wait_until(lambda: len(running.faulted) == len(PROJECTIONS), 60, "all to give up")
        for name in PROJECTIONS:
            assert len(failures(signals, name)) == 3
            delays = [failed.retry_seconds for failed in failures(signals, name)]
            assert delays == sorted(delays)
        server.start()
        check_all(url, complete=True)
        faults = [signal.fault for signal in signals if isinstance(signal, Faulted)]
        assert [fault.position for fault in faults] == [None] * len(PROJECTIONS)
    with build_app(url) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        app.catch_up(timeout_seconds=60)
    check_all(url, complete=True)


def await_failures(signals: list[Signal], projection: str, count: int) -> None:
    wait_until(
        lambda: len(failures(signals, projection)) >= count,
        60,
        f"{projection} to fail {count} times",
    )
