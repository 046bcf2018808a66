"""Runners that have nothing to do: one poll for all of them, and hardly a connection."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import psycopg
import pytest

from holdfast import App, Event, Poll, Projection, Tx, on
from holdfast.runtime.signals import Committed, LeaseLost, Paused, Resumed
from holdfast.sql.journal import journal_source
from holdfast.sql.store import head_reader
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import Counted, Sums, fetch
from tests.support.postgres import wait_until
from tests.support.sql import execute

PROJECTIONS = 50
WAIT_SECONDS = 60.0

HOLDERS = """
SELECT count(DISTINCT l.pid), count(*) FROM pg_locks AS l
JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'advisory' AND l.objsubid = 2
"""
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = %s
"""

LEADS = "SELECT leader_pid, leader_pid = pg_backend_pid() FROM holdfast_checkpoint"
LEADER = """
SELECT 1 FROM holdfast_checkpoint AS c
JOIN pg_stat_activity AS a ON a.pid = c.leader_pid AND a.backend_start = c.leader_since
"""
QUICK = Poll(interval_seconds=0.02, empty_backoff_seconds=0.02)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has nothing to do lets go at once."""
    monkeypatch.setattr(journal_source, "REST_SECONDS", 0.0)


@pytest.fixture
def alone(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where there is only one."""
    monkeypatch.setattr(head_reader, "KEPT_CONNECTIONS", 0)


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with closing(App(store_url)) as opened:
        yield opened


@dataclass
class Heard:
    """The kinds of signals, in order."""

    kinds: list[type]
    seen: int = 0

    def __call__(self) -> list[type]:
        return self.kinds[self.seen :]

    def forget(self) -> None:
        self.seen = len(self.kinds)


def hear(app: App) -> Heard:
    heard = Heard([])
    app.listen(lambda signal: heard.kinds.append(type(signal)))
    return heard


def add_many(app: App) -> list[str]:
    names = [f"sums_{n}" for n in range(PROJECTIONS)]
    for name in names:
        app.projection(name=name)(type(name, (Sums,), {}))
    return names


def test_fifty_idle_projections_hold_hardly_a_connection(eager: None, postgres_url: str) -> None:
    with closing(App(postgres_url)) as app, psycopg.connect(postgres_url, autocommit=True) as other:

        def connections() -> int:
            return int(other.execute(CONNECTIONS, ["holdfast"]).fetchall()[0][0])

        names = add_many(app)
        # One has the leases and listens, one looks, one is the pool's, and one notifies.
        few = 4 + head_reader.KEPT_CONNECTIONS
        with app.running():
            for by in (1, 10, 100):
                position = app.journal.append("a", [Counted(by)]).position
                for name in names:
                    app.wait_for(name, position, timeout_seconds=WAIT_SECONDS)
                wait_until(lambda: connections() <= few, WAIT_SECONDS, "connections to be closed")
                assert other.execute(HOLDERS).fetchall() == [(1, PROJECTIONS)]
        assert [fetch(app, f"SELECT total FROM {name}") for name in names] == [[(111,)]] * 50


def test_fifty_projections_that_stand_by_hold_hardly_a_connection(postgres_url: str) -> None:
    second_url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}application_name=second"
    with (
        closing(App(postgres_url)) as first,
        closing(App(second_url)) as second,
        psycopg.connect(postgres_url, autocommit=True) as other,
        ExitStack() as stack,
    ):

        def connections() -> int:
            return int(other.execute(CONNECTIONS, ["second"]).fetchall()[0][0])

        names = add_many(first)
        add_many(second)
        with first.running():
            position = first.journal.append("a", [Counted(1)]).position
            for name in names:
                first.wait_for(name, position, timeout_seconds=WAIT_SECONDS)
            stack.enter_context(second.running())
            wait_until(
                lambda: len(second._head_reader._standing_by) == PROJECTIONS,
                WAIT_SECONDS,
                "all to stand by",
            )
            # One would have the leases, and one is the pool's.
            wait_until(lambda: connections() <= 2, WAIT_SECONDS, "connections to be closed")
        position = first.journal.append("a", [Counted(10)]).position
        for name in names:
            first.wait_for(name, position, timeout_seconds=WAIT_SECONDS)
        assert [fetch(first, f"SELECT total FROM {name}") for name in names] == [[(11,)]] * 50


def test_an_append_reaches_fifty_idle_projections(eager: None, app: App) -> None:
    names = add_many(app)
    with app.running():
        for by in (1, 10, 100):
            position = app.journal.append("a", [Counted(by)]).position
            for name in names:
                app.wait_for(name, position, timeout_seconds=WAIT_SECONDS)
    assert [fetch(app, f"SELECT total FROM {name}") for name in names] == [[(111,)]] * 50


def test_a_worker_with_few_projections_keeps_its_connections(
    eager: None, postgres_url: str
) -> None:
    """The first event after a quiet time finds a connection open."""
    pids: list[int] = []

    class Noted(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            pids.append(tx.fetch("SELECT pg_backend_pid()")[0][0])

    with closing(App(postgres_url)) as app:
        app.projection(poll=QUICK)(Noted)
        with app.running():
            for by in range(3):
                position = app.journal.append("a", [Counted(by)]).position
                app.wait_for(Noted, position, timeout_seconds=WAIT_SECONDS)
    assert len(pids) == 3
    assert len(set(pids)) == 1


def test_whoever_wakes_up_leads_on_its_new_connection(alone: None, postgres_url: str) -> None:
    """An operator must be able to end it, also when it hangs in a handler."""
    found: list[tuple[int, bool]] = []

    class Noted(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            found.extend(tx.fetch(LEADS))

    with closing(App(postgres_url)) as app:
        app.projection(poll=QUICK)(Noted)
        with app.running():
            for by in range(3):
                position = app.journal.append("a", [Counted(by)]).position
                app.wait_for(Noted, position, timeout_seconds=WAIT_SECONDS)
                wait_until(
                    lambda: not execute(postgres_url, LEADER), WAIT_SECONDS, "the runner to rest"
                )
    assert [leads for _, leads in found] == [True] * 3
    assert len({pid for pid, _ in found}) == 3


def test_whoever_rests_looks_anew_after_a_ring(alone: None, app: App) -> None:
    app.migrate()
    with (
        closing(head_reader.HeadReader(app._database)) as shared,
        closing(SqlSession(app._database)) as session,
    ):
        source = journal_source.JournalSource(session, shared, shares=False)
        assert not source.read(0, 10).events
        app._database.wake.notify()
        assert source.wait(timeout_seconds=3600)
        assert session.is_resting
        assert not source.read(0, 10).events
        app.journal.append("a", [Counted(1)])
        assert [event.position for event in source.read(0, 10).events] == [1]


def test_an_append_that_nobody_announces_is_found(alone: None, app: App, store_url: str) -> None:
    app.projection(poll=QUICK)(Sums)
    with app.running():
        for by in (1, 10, 100):
            with app._database.writing() as connection:
                appended = app.journal.append(
                    "a", [Counted(by)], connection=connection.tx.connection
                )
            app.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)
    assert fetch(app, "SELECT total FROM sums") == [(111,)]


def test_whoever_rests_hears_of_a_pause(alone: None, app: App) -> None:
    heard = hear(app)
    app.projection(poll=QUICK)(Sums)
    with app.running():
        position = app.journal.append("a", [Counted(1)]).position
        app.wait_for(Sums, position, timeout_seconds=WAIT_SECONDS)
        for by in (10, 100):
            app.pause(Sums, by="ann")
            wait_until(lambda: Paused in heard(), WAIT_SECONDS, "the pause to be heard of")
            position = app.journal.append("a", [Counted(by)]).position
            app.resume(Sums, by="ann")
            app.wait_for(Sums, position, timeout_seconds=WAIT_SECONDS)
            wait_until(lambda: heard()[-2:] == [Resumed, Committed], WAIT_SECONDS, "what follows")
            heard.forget()
    assert fetch(app, "SELECT total FROM sums") == [(111,)]


def test_whoever_rests_hears_of_a_reset(alone: None, app: App) -> None:
    app.projection(poll=QUICK)(Sums)
    with app.running():
        position = app.journal.append("a", [Counted(1)]).position
        app.wait_for(Sums, position, timeout_seconds=WAIT_SECONDS)
        app.reset(Sums)
        app.wait_for(Sums, position, timeout_seconds=WAIT_SECONDS)
    assert fetch(app, "SELECT total FROM sums") == [(1,)]


def test_whoever_rests_hears_that_it_was_deposed(alone: None, app: App) -> None:
    heard = hear(app)
    app.projection(poll=QUICK)(Sums)
    with app.running():
        position = app.journal.append("a", [Counted(1)]).position
        app.wait_for(Sums, position, timeout_seconds=WAIT_SECONDS)
        app.depose(Sums)
        wait_until(lambda: LeaseLost in heard(), WAIT_SECONDS, "the loss of the lease")
        position = app.journal.append("a", [Counted(10)]).position
        app.wait_for(Sums, position, timeout_seconds=WAIT_SECONDS)
    assert fetch(app, "SELECT total FROM sums") == [(11,)]
