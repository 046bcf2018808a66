"""A process that has used its App forks: parent and children go on, each with its own connections.

As gunicorn with --preload, Celery's prefork pool and multiprocessing do it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Literal

import pytest

from holdfast import App, Event, HoldfastError, NewEvent, Projection, TableProjection, Tx, on
from tests.support.postgres import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

WAIT_SECONDS = 60.0
APPENDS = 30


@dataclass
class Reserved:
    item: str = "tea"


@dataclass
class Stock:
    stream: str
    reserved: int = 0


class Stocks(TableProjection[Stock]):
    @on(Reserved)
    def reserved(self, row: Stock, event: Event[Reserved]) -> None:
        row.reserved += 1


class Child:
    """A forked process that does one thing and ends, without the test's own way out."""

    def __init__(self, work: Callable[[], object]) -> None:
        gc.collect()  # Kafka clients that earlier tests have left must not end in the child.
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(code)
        self._status: int | None = None

    def await_end(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        wait_until(self._has_ended, WAIT_SECONDS, f"child {self.pid} to end")
        assert self._status is not None
        return os.waitstatus_to_exitcode(self._status)

    def kill(self) -> None:
        if not self._has_ended():
            os.kill(self.pid, signal.SIGKILL)
            self.await_end()

    def _has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], object]], Child]]:
    with ExitStack() as stack:

        def fork(work: Callable[[], object]) -> Child:
            child = Child(work)
            stack.callback(child.kill)
            return child

        yield fork


Fork = Callable[[Callable[[], object]], Child]


class Signpost:
    """A pipe over which one process lets another go on."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def say(self, text: str = "go") -> None:
        os.write(self._write, text.encode())

    def await_word(self) -> str:
        return os.read(self._read, 100).decode()

    def await_end(self) -> None:
        """Returns when no other process can say anything any more."""
        os.close(self._write)
        while os.read(self._read, 100):
            pass

    def close(self) -> None:
        for end in (self._read, self._write):
            os.close(end)


@contextmanager
def signposts(count: int) -> Iterator[list[Signpost]]:
    made = [Signpost() for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def used_app(url: str) -> App:
    """An app that has appended, read, and run its projections."""
    app = App(url)
    app.projection(Stocks)
    app.journal.append("warm", [Reserved()])
    app.catch_up(timeout_seconds=WAIT_SECONDS)
    return app


def append_alone(app: App, stream: str) -> None:
    """Appends to a stream that nobody else appends to, and to one that others do."""
    positions = []
    for version in range(1, APPENDS + 1):
        appended = app.journal.append(stream, [Reserved()])
        assert appended.version == version
        positions.append(appended.position)
        app.journal.append("shared", [Reserved()])
    assert positions == sorted(set(positions))
    assert [event.version for event in app.journal.read_stream(stream)] == list(
        range(1, APPENDS + 1)
    )


def counts(url: str) -> dict[str, int]:
    """How many events each stream has, read afresh; their versions are without a gap."""
    last: Counter[str] = Counter()
    with App(url) as app:
        for event in app.journal.read_raw():
            last[event.stream] += 1
            assert event.version == last[event.stream]
    return dict(last)


def test_children_append_beside_their_parent(store_url: str, fork: Fork) -> None:
    with used_app(store_url) as app:
        children = [fork(lambda n=n: append_alone(app, f"child-{n}")) for n in range(3)]  # type: ignore[misc]
        append_alone(app, "parent")
        assert [child.await_end() for child in children] == [0, 0, 0]
        app.catch_up(timeout_seconds=WAIT_SECONDS)
    each = dict.fromkeys(("child-0", "child-1", "child-2", "parent"), APPENDS)
    assert counts(store_url) == {**each, "shared": 4 * APPENDS, "warm": 1}


def test_children_are_forked_while_threads_append(store_url: str, fork: Fork) -> None:
    acknowledged: Counter[str] = Counter()
    stop = threading.Event()

    with used_app(store_url) as app:

        def append(stream: str) -> None:
            while not stop.is_set():
                app.journal.append(stream, [Reserved()])
                acknowledged[stream] += 1

        threads = [threading.Thread(target=append, args=(f"thread-{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(1, 21):
                seen = acknowledged.total()
                wait_until(lambda seen=seen: acknowledged.total() > seen, WAIT_SECONDS, "an append")  # type: ignore[misc]
                child = fork(lambda: app.journal.append("child", [Reserved()]))
                assert child.await_end() == 0, f"the child of turn {turn}"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert counts(store_url) == {**acknowledged, "child": 20, "warm": 1}


def test_a_child_outlives_its_parents_app(store_url: str, fork: Fork) -> None:
    """On SQLite the last one out removes the WAL, and a child must not be overlooked."""
    with signposts(2) as (begun, closed):
        app = used_app(store_url)

        def work() -> None:
            app.journal.append("child", [Reserved()])
            begun.say()
            closed.await_word()
            app.journal.append("child", [Reserved()])

        child = fork(work)
        begun.await_word()
        app.close()
        closed.say()
        assert child.await_end() == 0
    assert counts(store_url) == {"child": 2, "warm": 1}


def test_a_child_can_leave_the_block_in_which_projections_run(store_url: str, fork: Fork) -> None:
    with used_app(store_url) as app, ExitStack() as stack:
        running = stack.enter_context(app.running())

        def work() -> None:
            stack.close()
            assert running.faulted == {}
            appended = app.journal.append("child", [Reserved()])
            app.wait_for(Stocks, appended.position, timeout_seconds=WAIT_SECONDS)

        appended = app.journal.append("parent", [Reserved()])
        app.wait_for(Stocks, appended.position, timeout_seconds=WAIT_SECONDS)
        assert fork(work).await_end() == 0
        assert running.faulted == {}
        appended = app.journal.append("parent", [Reserved()])
        app.wait_for(Stocks, appended.position, timeout_seconds=WAIT_SECONDS)


def test_a_child_can_run_the_projections(store_url: str, fork: Fork) -> None:
    with used_app(store_url) as app:

        def work() -> None:
            with app.running():
                appended = app.journal.append("child", [Reserved()])
                app.wait_for(Stocks, appended.position, timeout_seconds=WAIT_SECONDS)
            app.close()

        assert fork(work).await_end() == 0
        assert [status.state for status in app.status()] == ["stopped"]


def test_a_killed_leader_loses_its_lease_though_its_child_lives(store_url: str, fork: Fork) -> None:
    with signposts(2) as (born, over):

        def lead() -> None:
            app = used_app(store_url)
            with app.running():
                wait_until(
                    lambda: [status.state for status in app.status()] == ["running"],
                    WAIT_SECONDS,
                    "the lease",
                )
                child = Child(over.await_end)
                born.say(str(child.pid))
                over.await_end()

        leader = fork(lead)
        grandchild = int(born.await_word())
        os.kill(leader.pid, signal.SIGKILL)
        assert leader.await_end() == -signal.SIGKILL
        with App(store_url) as app:
            app.projection(Stocks)
            app.journal.append("after", [Reserved()])
            app.catch_up(timeout_seconds=WAIT_SECONDS)
            assert [status.position for status in app.status()] == [app.journal.head()]
        os.kill(grandchild, 0)  # It lives: else this raises.


def test_a_child_does_not_end_its_parents_leases(postgres_url: str, fork: Fork) -> None:
    """A handler that forks has the runner's lease in the child, which releases it as it ends."""
    with used_app(postgres_url) as app, closing(app._open_session()) as session:
        checkpoint = session.open_checkpoint("stocks", "journal")
        lease = app._database.lease(checkpoint)
        assert lease is not None

        def work() -> None:
            assert not lease.held
            lease.release()

        assert fork(work).await_end() == 0
        heard = app._database.wake.count
        with App(postgres_url) as other:
            other.journal.append("other", [Reserved()])
        assert app._database.wake.wait(heard, WAIT_SECONDS)
        assert lease.held
        lease.release()


def test_a_child_has_a_copy_of_a_database_in_memory(fork: Fork) -> None:
    with used_app("sqlite:///:memory:") as app, app.running():

        def work() -> None:
            append_alone(app, "child")
            app.catch_up(timeout_seconds=WAIT_SECONDS)
            assert app.journal.head() == 1 + 2 * APPENDS

        assert fork(work).await_end() == 0
        assert app.journal.head() == 1
        append_alone(app, "parent")


def test_a_child_forked_inside_a_handler_is_refused_sqlite(sqlite_url: str, fork: Fork) -> None:
    """The child has SQLite's record of the parent's locks, and would wait for them for ever."""
    ended: list[int] = []

    def work() -> None:
        with App(sqlite_url) as own, pytest.raises(HoldfastError, match="forked while"):
            own.journal.append("child", [Reserved()])

    with App(sqlite_url) as app:

        @app.projection
        class Forking(Projection):
            @on("Reserved")
            def reserved(self, event: Event[NewEvent], tx: Tx) -> None:
                ended.append(fork(work).await_end())

        app.journal.append("warm", [Reserved()])
        app.catch_up(timeout_seconds=WAIT_SECONDS)
        assert fork(lambda: app.journal.append("child", [Reserved()])).await_end() == 0
    assert ended == [0]
    assert counts(sqlite_url) == {"warm": 1, "child": 1}


@pytest.mark.parametrize("delivery", ["log", "outbox"])
def test_a_child_that_returns_from_a_handler_runs_nothing(
    store_url: str, delivery: Literal["log", "outbox"]
) -> None:
    """The parent goes on, and the child ends: it would wait to take over from its parent."""
    children: list[int] = []

    with App(store_url) as app:

        @app.projection(delivery=delivery)
        class Forking(Projection):
            @on("Reserved")
            def reserved(self, event: Event[NewEvent], tx: Tx) -> None:
                if not children:
                    children.append(os.fork())

        with app.running():
            app.journal.append("a", [Reserved()])
            position = app.journal.append("a", [Reserved()]).position
            app.wait_for("forking", position, timeout_seconds=WAIT_SECONDS)
            (child,) = children
            try:
                ended = lambda: os.waitpid(child, os.WNOHANG)[0] == child  # noqa: E731
                wait_until(ended, WAIT_SECONDS, "the child to end")
            except BaseException:
                os.kill(child, signal.SIGKILL)
                raise
        assert [s.last_error for s in app.status()] == [None]
