"""Random histories of appends, starts, stops, freezes, lost leases and deposed leaders.

At every step what is in the tables must be what the checkpoints say, and at the end all of it.
"""

import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast import Backoff, Event, Poll
from tests.support.postgres import Databases
from tests.world.app import PROJECTIONS, Moved, build_app
from tests.world.checks import check_all
from tests.world.gate import lose_leases
from tests.world.progress import await_arrival

MAX_WORKERS = 3
POLL = Poll(
    interval_seconds=0.01,
    empty_backoff_seconds=0.05,
    failure_backoff=Backoff(delay_seconds=0.01, max_delay_seconds=0.05),
    max_consecutive_failures=None,
)


@dataclass(eq=False)
class Worker:
    """An app that runs, and that can be frozen in the middle of an event."""

    url: str
    running: ExitStack = field(default_factory=ExitStack)
    awake: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.awake.set()
        # A frozen handler on SQLite would hold the one write lock, and all would be frozen.
        handling = self._may_freeze if self.url.startswith("postgresql") else lambda _: None
        app = build_app(self.url, poll=POLL, on_folding=self._may_freeze, on_handling=handling)
        self.running.enter_context(app)
        self.running.enter_context(app.running())

    def stop(self) -> None:
        self.awake.set()
        self.running.close()

    def _may_freeze(self, _: Event[Any]) -> None:
        self.awake.wait()


class History(RuleBasedStateMachine):
    """What may happen to a few workers on one database."""

    workers = Bundle("workers")

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.app = build_app(url)
        self.app.migrate()
        self.running: list[Worker] = []
        self.appended = 0

    @initialize(target=workers)
    def begin(self) -> Worker:
        return self._start()

    @rule(stream=st.integers(1, 3), count=st.integers(1, 8))
    def append(self, stream: int, count: int) -> None:
        self.app.journal.append(f"account-{stream}", [Moved(n) for n in range(count)])
        self.appended += count

    @precondition(lambda self: len(self.running) < MAX_WORKERS)
    @rule(target=workers)
    def start(self) -> Worker:
        return self._start()

    @rule(worker=consumes(workers))
    def stop(self, worker: Worker) -> None:
        self.running.remove(worker)
        worker.stop()

    @rule(worker=workers)
    def freeze(self, worker: Worker) -> None:
        worker.awake.clear()

    @rule(worker=workers)
    def wake(self, worker: Worker) -> None:
        worker.awake.set()

    @rule()
    def lose_leases(self) -> None:
        lose_leases(self.url)

    @rule(projection=st.sampled_from(PROJECTIONS))
    def depose(self, projection: str) -> None:
        self.app.depose(projection)

    @precondition(lambda self: self.appended and self.running and self._all_awake())
    @rule()
    def arrive(self) -> None:
        await_arrival(self.url)
        check_all(self.url, complete=True)

    @invariant()
    def rows_agree_with_checkpoints(self) -> None:
        check_all(self.url)

    def _start(self) -> Worker:
        worker = Worker(self.url)
        worker.start()
        self.running.append(worker)
        return worker

    def _all_awake(self) -> bool:
        return all(worker.awake.is_set() for worker in self.running)

    def teardown(self) -> None:
        for worker in self.running:
            worker.stop()
        try:
            self.app.catch_up(timeout_seconds=60)
            assert check_all(self.url, complete=self.appended > 0).events == self.appended
        finally:
            self.app.close()


def length(examples: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=25, suppress_health_check=list(HealthCheck)
    )


def test_histories_on_sqlite() -> None:
    run_state_machine_as_test(OnSqlite, settings=length(10))


def test_histories_on_postgres(postgres_server: Databases) -> None:
    run_state_machine_as_test(on_postgres(postgres_server), settings=length(6))


@pytest.mark.soak
def test_many_histories_on_sqlite() -> None:
    run_state_machine_as_test(OnSqlite, settings=length(300))


@pytest.mark.soak
def test_many_histories_on_postgres(postgres_server: Databases) -> None:
    run_state_machine_as_test(on_postgres(postgres_server), settings=length(150))


class OnSqlite(History):
    """Each history on a file of its own."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().__init__(f"sqlite:///{self.folder.name}/journal.db")

    def teardown(self) -> None:
        with self.folder:
            super().teardown()


def on_postgres(server: Databases) -> type[History]:
    """Each history on a database of its own."""

    class OnPostgres(History):
        def __init__(self) -> None:
            super().__init__(server.create_database())

        def teardown(self) -> None:
            super().teardown()
            server.drop_database(self.url)

    return OnPostgres
