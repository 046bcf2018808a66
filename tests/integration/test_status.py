"""What status, explain and the queue say about projections, on both databases."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import (
    App,
    Backoff,
    Park,
    Policy,
    Poll,
    Projection,
    ProjectionStatus,
    Reason,
    Retry,
    Tx,
    on,
)
from holdfast.metrics import catalogue
from holdfast.metrics.gauges import measure
from holdfast.model.event import Event
from tests.contracts.samples import Counted, execute
from tests.support.limits import set_limits
from tests.support.postgres import Databases, wait_until

WAIT_SECONDS = 30.0


@pytest.fixture
def app(quick_url: str) -> Iterator[App]:
    with closing(App(quick_url)) as app:
        set_limits(app, recheck_seconds=0.05, fault_check_seconds=0.05)
        yield app


def status_of(app: App, projection: str) -> ProjectionStatus:
    (found,) = [status for status in app.status() if status.projection == projection]
    return found


def reasons(app: App, projection: str) -> dict[str, Reason]:
    return {reason.kind: reason for reason in app.explain(projection)}


@pytest.mark.parametrize("limit", [None, 8])
def test_a_projection_that_retries_says_why(app: App, limit: int | None) -> None:
    backoff = Backoff(max_attempts=limit, delay_seconds=0.01, multiplier=1e6, max_delay_seconds=60)
    broken = True

    @app.projection(policy=Policy(on_error=Retry(backoff=backoff)))
    class Sums(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            if broken and event.data.n == 2:
                raise ValueError("two is too much")

    appended = app.journal.append("a", [Counted(1), Counted(2)])
    with app.running():
        wait_until(lambda: "waiting" in reasons(app, "sums"), WAIT_SECONDS, "a retry")
        wait_until(
            lambda: (e := status_of(app, "sums").last_error) is not None and e.attempts == 2,
            WAIT_SECONDS,
            "the second attempt",
        )
        status = status_of(app, "sums")
        error = status.last_error
        assert error is not None
        assert (error.type, error.message) == ("ValueError", "two is too much")
        assert (error.position, error.event_type) == (appended.positions[1], "Counted")
        assert (error.attempts, error.max_attempts) == (2, limit)
        assert error.since < error.at
        assert 'raise ValueError("two is too much")' in error.stacktrace
        assert (status.state, status.is_faulted) == ("running", False)
        assert status.waiting_until is not None
        reason = reasons(app, "sums")["waiting"]
        assert "two is too much" in reason.text
        assert f"attempt 2{'' if limit is None else ' of 8'} failed" in reason.text
        assert reason.fields["error_stacktrace"] == error.stacktrace
        assert reason.fields["since"] == error.since
        assert "faulted" not in reasons(app, "sums")
        broken = False
        assert app.retry("sums", by="ann")  # Ends the wait.
        app.wait_for("sums", appended.position)
        assert status_of(app, "sums").last_error is None


def test_a_fault_says_how_often_its_event_was_tried(app: App) -> None:
    @app.projection(policy=Policy(on_error=Retry(backoff=Backoff.constant(0.01, max_attempts=3))))
    class Sums(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            raise ValueError("no")

    app.journal.append("a", [Counted(1)])
    with pytest.raises(Exception, match="no"):
        app.catch_up()
    status = status_of(app, "sums")
    assert status.is_faulted
    assert status.last_error is not None
    assert status.last_error.attempts == 3
    assert status.last_error.since < status.last_error.at
    app.pause("sums", by="ann")
    assert (status_of(app, "sums").state, status_of(app, "sums").is_faulted) == ("paused", True)


@pytest.mark.parametrize("settings", [{}, {"shards": 2}, {"delivery": "outbox"}])
def test_a_projection_that_gave_up_polling_is_faulted_when_the_database_is_back(
    postgres_url: str, postgres_server: Databases, settings: dict[str, Any]
) -> None:
    once = Poll(max_consecutive_failures=1, failure_backoff=Backoff.constant(0.01))
    ever = Poll(max_consecutive_failures=None, failure_backoff=Backoff.constant(0.01))
    with closing(App(postgres_url)) as app:
        set_limits(app, recheck_seconds=0.05, fault_check_seconds=0.05)
        for name, poll in (("hasty", once), ("patient", ever)):
            app.projection(name=name, poll=poll, **settings)(Deaf)
        position = app.journal.append("a", [Counted(1)]).position
        with app.running() as running:
            for name in app.projections:
                app.wait_for(name, position)
            with away(postgres_url, postgres_server):
                wait_until(lambda: "hasty" in running.faulted, WAIT_SECONDS, "the hasty one")
            wait_until(
                lambda: {s.projection for s in app.status() if s.is_faulted} == {"hasty"},
                WAIT_SECONDS,
                "the fault to be recorded",
            )
            faulted = [s for s in app.status() if s.is_faulted]
            assert all(s.last_error and s.last_error.position is None for s in faulted)
            states = measure(app)[catalogue.STATE]
            # Of two shards, the second may fault after the first was seen.
            assert {key[0] for key, on in states.items() if key[2] == "faulted" and on} == {"hasty"}
            assert "faulted" in reasons(app, "hasty")
            assert "faulted" not in reasons(app, "patient")
            app.retry("hasty", by="ann")
            last = app.journal.append("a", [Counted(2)]).position
            for name in app.projections:
                app.wait_for(name, last)


@contextmanager
def away(url: str, server: Databases) -> Iterator[None]:
    """The database takes no connections during the block."""
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        try:
            yield
        finally:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


class Deaf(Projection):
    @on(Counted)
    def counted(self, event: Event[Counted], tx: Tx) -> None:
        pass


class Mails(Projection):
    """Fails once at each even number."""

    tables: ClassVar = {"mails": "CREATE TABLE mails (n bigint)"}
    seen: ClassVar[set[int]] = set()

    @on(Counted)
    def counted(self, event: Event[Counted], tx: Tx) -> None:
        n = event.data.n
        if n % 2 == 0 and n not in self.seen:
            self.seen.add(n)
            raise ValueError("not yet")
        tx.execute(f"INSERT INTO mails VALUES ({n})")


def test_attempts_of_an_outbox_are_counted_with_their_rows(app: App, quick_url: str) -> None:
    Mails.seen.clear()
    park = Policy(on_error=Park())
    app.projection(name="mails", delivery="outbox", inline_seconds=30, policy=park)(Mails)
    app.migrate()

    def counted() -> tuple[int, int]:
        (report,) = app.outbox.report()
        assert status_of(app, "mails").events_processed == report.applied
        return report.applied, report.failed

    first = app.journal.append("a", [Counted(1)])
    assert first.applied == {"mails"}  # At once, in this process.
    assert counted() == (1, 0)
    app.journal.append("b", [Counted(2), Counted(3)])
    assert counted() == (1, 1)
    (item, _) = app.queue.list()
    assert app.outbox.replay(item.id, by="ann") is None
    assert counted() == (2, 1)
    with app.running():
        app.wait_for("mails", stream="b")
        assert counted() == (3, 1)  # Before the relay tells of itself.
        assert status_of(app, "mails").state == "running"
    status = status_of(app, "mails")
    assert (status.state, status.last_event_type) == ("stopped", "Counted")
    (last,) = [event for event in app.journal.read() if event.data.n == 3]
    assert status.last_event_id == last.id
    assert status.last_processed_at is not None
    app.reset("mails")
    assert counted() == (0, 0)
    assert status_of(app, "mails").last_event_id is None


def test_an_outbox_whose_worker_was_killed_does_not_run(app: App) -> None:
    app.projection(name="mails", delivery="outbox")(Mails)
    with app.running():
        wait_until(lambda: bool(app.outbox.report()[0].relays), WAIT_SECONDS, "a start")
        assert status_of(app, "mails").state == "running"
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    host = socket.gethostname()
    execute(
        app, f"UPDATE holdfast_relay SET ended_at = NULL, process = '{host}:{gone.pid}:0123abcd'"
    )
    assert status_of(app, "mails").state == "stopped"
    (report,) = app.outbox.report()
    assert [relay.is_alive for relay in report.relays] == [False]
    execute(app, "UPDATE holdfast_relay SET process = 'elsewhere:1:0123abcd'")
    assert status_of(app, "mails").state == "running"
