"""Registering on a journal to which others append all the time: no gap, nothing twice, in order."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psycopg
import pytest

from holdfast import App
from holdfast.errors import StoreConflict
from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.appender import Background
from tests.world.checks import check_one
from tests.world.process import WorkerProcess
from tests.world.progress import await_settled
from tests.world.spoilt import PARKS
from tests.world.wanted import Step, Wanted

STREAMS = 5
WRITERS = 3


def test_registering_while_others_append(store_url: str, outbox_kind: Name, outbox: Wanted) -> None:
    """The first workers end in the middle of the backfill, before and after a commit."""
    limits = replace(outbox.limits, backfill_events=7)
    outbox = replace(outbox, is_patient=True, limits=limits)
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    with build_app(store_url, outbox_kind, policy=PARKS) as app, ExitStack() as stack:
        app.migrate()
        writers = [
            stack.enter_context(Writer(store_url, seed=chance.randrange(2**32), late=late))
            for late in [False] * WRITERS + [True] * store_url.startswith("postgresql")
        ]
        wait_until(lambda: all(w.appended >= 30 for w in writers), 30, "events to be there")
        for step in (Step("after", "move_backfill", 2), Step("before", "move_backfill", 3)):
            with WorkerProcess(replace(outbox, dies=step)) as dying:
                dying.wait(30)
            assert check_one(store_url, outbox_kind).left
        workers = [stack.enter_context(WorkerProcess(outbox)) for _ in range(2)]
        for worker in workers:
            worker.wait_until_said("Started")
        before = [writer.appended for writer in writers]
        wait_until(
            lambda: all(w.appended >= b + 20 for w, b in zip(writers, before, strict=True)),
            30,
            "more events to be there",
        )
        for writer in writers:
            writer.stop()
        await_settled(store_url, outbox_kind, lambda: workers)
        for worker in workers:
            assert worker.stop() == 0, worker
    found = check_one(store_url, outbox_kind, complete=True)
    assert not found.statuses
    assert len(found.applied) == sum(writer.appended for writer in writers)


@pytest.mark.parametrize("begins", ["before", "between"])
def test_transaction_that_began_before_the_registration(
    postgres_url: str, outbox_kind: Name, begins: str
) -> None:
    """It can't see the registration, and would leave the queue without its events."""
    with (
        build_app(postgres_url, outbox_kind, policy=PARKS) as writer,
        psycopg.connect(postgres_url) as connection,
        build_app(postgres_url, outbox_kind, policy=PARKS, concurrency=4) as app,
    ):
        writer.migrate()
        if begins == "between":
            app.migrate()
            app = build_app(postgres_url, outbox_kind, policy=PARKS, concurrency=4)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1 FROM holdfast_event").fetchall()
        app.migrate()
        if begins == "before":
            with pytest.raises(StoreConflict):
                writer.journal.append("lane-1", [Moved(1)], connection=connection)
            connection.rollback()
        writer.journal.append("lane-1", [Moved(1)], connection=connection)
        connection.commit()
        assert check_one(postgres_url, outbox_kind).with_status("pending")
        app.catch_up(timeout_seconds=30)
        assert len(check_one(postgres_url, outbox_kind, complete=True).applied) == 1
        app.close()


STALL_SQL = """
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END';
CREATE TRIGGER stall BEFORE INSERT ON holdfast_event FOR EACH ROW EXECUTE FUNCTION stall();
"""


def test_an_append_that_stalls_while_others_register(postgres_url: str, outbox_kind: Name) -> None:
    """It has begun before the registration, and draws its last position long after it."""
    with (
        build_app(postgres_url, outbox_kind, policy=PARKS) as writer,
        psycopg.connect(postgres_url, autocommit=True) as gate,
        build_app(postgres_url, outbox_kind, policy=PARKS, concurrency=4) as app,
    ):
        writer.migrate()
        gate.execute(STALL_SQL)
        gate.execute("SELECT pg_advisory_lock(4711)")
        events = [Moved(n) for n in range(3)]
        append = threading.Thread(target=writer.journal.append, args=("lane-1", events))
        append.start()
        waits = "SELECT 1 FROM pg_locks WHERE objid = 4711 AND NOT granted"
        wait_until(lambda: bool(gate.execute(waits).fetchall()), 30, "the append to stall")
        app.migrate()
        gate.execute("SELECT pg_advisory_unlock(4711)")
        append.join()
        app.catch_up(timeout_seconds=30)
        assert len(check_one(postgres_url, outbox_kind, complete=True).applied) == len(events)


class Writer(Background):
    """A thread that appends until the block ends, through an app that knows of no outbox.

    `late`: in transactions that have begun long before, which see the past; what they can't do is
    tried again.
    """

    def __init__(self, url: str, *, seed: int, late: bool) -> None:
        super().__init__(self._append_until)
        self.appended = self.refused = 0
        self._url, self._late = url, late
        self._chance = random.Random(seed)

    def _append_until(self, stop: threading.Event) -> None:
        with build_app(self._url, "keyed", policy=PARKS) as app, ExitStack() as stack:
            connection = stack.enter_context(psycopg.connect(self._url)) if self._late else None
            if connection is not None:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while not stop.is_set():
                self._append(app, connection)
                stop.wait(self._chance.uniform(0, 0.1))

    def _append(self, app: App, connection: "psycopg.Connection | None") -> None:
        # A transaction that sees the past can't append to a stream to which others do.
        stream = f"{'late' if self._late else 'lane'}-{self._chance.randrange(STREAMS)}"
        events = [Moved(self.appended) for _ in range(self._chance.randint(1, 3))]
        while True:
            try:
                with self._began_early(connection):
                    app.journal.append(stream, events, connection=connection)
            except StoreConflict:
                self.refused += 1
            else:
                self.appended += len(events)
                return

    @contextmanager
    def _began_early(self, connection: "psycopg.Connection | None") -> Iterator[None]:
        if connection is None:
            yield
            return
        with connection.transaction():
            connection.execute("SELECT 1 FROM holdfast_event LIMIT 1").fetchall()
            self._stop.wait(self._chance.uniform(0, 0.05))
            yield
