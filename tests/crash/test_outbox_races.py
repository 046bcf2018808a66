"""Operators, writers and workers that meet in the middle of something, on PostgreSQL."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import psycopg
import pytest

from holdfast import App, Event, Park, Policy, Projection, QueueSelection, StoreConflict, Tx, on
from holdfast.clock import SystemClock
from holdfast.runtime.store.claims import Claim
from holdfast.sql.outbox.claims import SqlClaims
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import Counted, fetch
from tests.support.postgres import wait_until

WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def bad() -> set[int]:
    """Numbers at which the handler fails."""
    return set()


@pytest.fixture
def app(url: str, bad: set[int]) -> Iterator[App]:
    with App(url) as app:

        @app.projection(delivery="outbox", policy=Policy(on_error=Park()), keep_seconds=3600)
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (place serial, stream text, n bigint)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n in bad:
                    raise ValueError("no")
                row = (event.stream, event.data.n)
                tx.execute("INSERT INTO sums (stream, n) VALUES (%s, %s)", row)

        app.migrate()
        yield app


@contextmanager
def beside(work: Callable[[], Any], url: str) -> Iterator[threading.Thread]:
    """Work in a thread, which waits for a lock when the block begins, and has ended after it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    with psycopg.connect(url, autocommit=True) as watch:
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: bool(watch.execute(WAITS).fetchall()), 30, "somebody to wait")
        yield thread
        thread.join()
    for error in errors:
        raise error


def applied(app: App) -> dict[str, list[int]]:
    app.catch_up(timeout_seconds=30)
    found: dict[str, list[int]] = {}
    for stream, n in fetch(app, "SELECT stream, n FROM sums ORDER BY place"):
        found.setdefault(stream, []).append(n)
    assert fetch(app, "SELECT count(*) FROM holdfast_lane") == [(0,)]
    assert {item.status for item in app.queue.list()} <= {"done"}
    return found


def test_a_reset_beside_an_open_append(app: App, url: str) -> None:
    app.journal.append("a", [Counted(1)])
    with psycopg.connect(url) as open_:
        app.journal.append("a", [Counted(2)], connection=open_)
        app.journal.append("b", [Counted(3)], connection=open_)
        with beside(lambda: app.reset("sums"), url):
            open_.commit()
    app.journal.append("a", [Counted(4)])
    assert applied(app) == {"a": [1, 2, 4], "b": [3]}


def test_forgetting_beside_an_open_append(app: App, url: str) -> None:
    app.journal.append("a", [Counted(1)])
    with psycopg.connect(url) as open_:
        app.journal.append("a", [Counted(2)], connection=open_)
        with beside(lambda: app.outbox.forget("sums", by="me"), url):
            open_.commit()
    app.journal.append("a", [Counted(3)])
    lanes = "SELECT lane, events FROM holdfast_lane"
    queued = "SELECT lane, count(*) FROM holdfast_queue GROUP BY lane"
    assert fetch(app, lanes) == fetch(app, queued)


def test_deleting_what_is_over_waits_for_nobody(app: App, url: str) -> None:
    app.journal.append("a", [Counted(1)])
    app.catch_up()
    app.journal.append("a", [Counted(2)])
    with psycopg.connect(url) as open_:
        app.journal.append("a", [Counted(3)], connection=open_)
        assert app.queue.purge(QueueSelection(status="done"), by="me").items
        open_.commit()
    assert applied(app) == {"a": [1, 2, 3]}


def test_resolving_beside_an_open_append(app: App, url: str, bad: set[int]) -> None:
    bad.add(1)
    app.journal.append("a", [Counted(1)])
    app.catch_up()
    with psycopg.connect(url) as open_:
        app.journal.append("a", [Counted(2)], connection=open_)
        resolve = QueueSelection(status="dead")
        with beside(lambda: app.queue.resolve(resolve, by="me", note="seen"), url):
            open_.commit()
    assert app.queue.purge(QueueSelection(status="resolved"), by="me").items
    assert applied(app) == {"a": [2]}


@pytest.mark.parametrize(
    "change",
    [b"UPDATE holdfast_outbox SET mode = 'off'", b"UPDATE holdfast_outbox SET backfill_until = 9"],
)
def test_a_claim_that_waits_for_an_operator_sees_the_change(
    app: App, url: str, change: bytes
) -> None:
    app.journal.append("a", [Counted(1)])
    got: list[Sequence[Claim]] = []

    def claim() -> None:
        with closing(SqlSession(app._database)) as session:
            claims = SqlClaims(session, app._catalog.find("sums"), clock=SystemClock())
            got.append(claims.claim("token", lanes=1, again=1, items=1))

    with psycopg.connect(url) as operator:
        operator.execute("SELECT 1 FROM holdfast_checkpoint FOR UPDATE").fetchall()
        with beside(claim, url):
            operator.execute(change)
            operator.commit()
    assert got == [[]]


def test_an_append_is_not_the_victim_of_an_operator(app: App, url: str, bad: set[int]) -> None:
    bad.add(1)
    for stream in "ab":
        app.journal.append(stream, [Counted(1)])
    app.catch_up()
    bad.clear()
    with psycopg.connect(url) as open_:
        app.journal.append("b", [Counted(2)], connection=open_)
        with beside(lambda: app.queue.requeue(QueueSelection(), by="me"), url):
            app.journal.append("a", [Counted(2)], connection=open_)
            open_.commit()
    assert applied(app) == {"a": [1, 2], "b": [1, 2]}


def test_a_message_from_the_past(app: App, url: str) -> None:
    """It can't see the sink, which would never get the message."""
    got: list[int] = []

    class Mails(Projection):
        @on("mail")
        def mail(self, event: Event[Any], tx: Tx) -> None:
            got.append(event.data["n"])

    app.sink(name="one")(Mails)
    app.migrate()
    with psycopg.connect(url) as past:
        past.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        past.execute("SELECT 1 FROM holdfast_event").fetchall()
        app.sink(name="two")(Mails)
        app.migrate()
        with pytest.raises(StoreConflict, match="try again"):
            app.outbox.send("mail", {"n": 1}, key="a", connection=past)
        past.rollback()
        app.outbox.send("mail", {"n": 1}, key="a", connection=past)
        past.commit()
        past.execute("SELECT 1 FROM holdfast_event").fetchall()
        app.outbox.forget("one", by="me")
        with pytest.raises(StoreConflict, match="try again"):
            app.outbox.send("mail", {"n": 2}, key="a", connection=past)
    app.outbox.set_mode("two", "live", by="me")


def test_inline_appends_do_not_wait_for_a_backfill(url: str) -> None:
    """Which waits for an append that has not ended."""
    with App(url) as writer, App(url) as app, psycopg.connect(url) as open_:
        writer.journal.append("a", [Counted(1)])
        writer.journal.append("b", [Counted(2)], connection=open_)

        @app.projection(delivery="outbox", inline_seconds=0.05)
        class Slow(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None: ...

        assert not app.journal.append("c", [Counted(3)]).applied
        assert not app.journal.append("c", [Counted(4)]).applied
        with app.running():
            open_.commit()
            wait_until(lambda: not app.queue.list(), 30, "an empty queue")
