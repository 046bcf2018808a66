"""Random histories of failures, decisions, crashes, zombies and what operators do to the queue.

After every step each event must be applied once, or skipped, or resolved, or wait in its lane; the
lanes must be in order and closed exactly where something waits; and in the end, when nothing fails
any more, all of it must be applied.
"""

import tempfile
import threading
import time
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast import (
    App,
    Backoff,
    Event,
    Failure,
    HoldfastError,
    Policy,
    Poll,
    QueueItem,
    QueueSelection,
)
from holdfast.model.policy import Decision
from holdfast.runtime.run.worker import Worker
from holdfast.testing import FixedClock
from tests.support.limits import use_limits
from tests.support.postgres import Databases, wait_until
from tests.world.app import LANE_KINDS, Moved, Name, build_app
from tests.world.checks import check_one
from tests.world.fuse import Blow, Crash, Fuse
from tests.world.gate import take_lease
from tests.world.spoilt import DECISIONS, LATER_SECONDS, Poisoned

POLL = Poll(
    interval_seconds=0.01,
    empty_backoff_seconds=0.05,
    failure_backoff=Backoff(delay_seconds=0.01, max_delay_seconds=0.05),
)
BLOWS: tuple[Blow, ...] = ("crash before", "crash after", "lost before", "lost after")
MAX_ROUNDS = 20
decisions = st.sampled_from(["park"] * 4 + sorted(DECISIONS))
events = st.tuples(st.sampled_from("xy"), st.none() | st.none() | decisions)
which = st.one_of(
    st.integers(0, 30), st.sampled_from(["lane-1", "lane-2", "lane-3", "x", "y"]), st.none()
)


class Clock(FixedClock):
    """Parked events are due when a rule says so; a retry waits for as long as it takes."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wait_until(
        self, moment: float, stop: threading.Event, *, part_seconds: float, blocks_caller: bool
    ) -> bool:
        return stop.wait(max(0.0, min(part_seconds, moment - time.monotonic())))


class Held:
    """A runner that stands still before one of its transactions, until it is let go."""

    def __init__(self, run: Worker, fuse: Fuse, commits: int) -> None:
        self._reached, self._go = threading.Event(), threading.Event()
        self.has_lease = True
        fuse.set("hold", commits, hold=self._hold)
        self._thread = threading.Thread(target=run.run)
        self._thread.start()
        wait_until(self._is_settled, 30, "a runner to stand still, or to end")

    @property
    def stands(self) -> bool:
        return self._thread.is_alive()

    def let_go(self) -> None:
        self._go.set()
        self._thread.join()

    def _hold(self) -> None:
        self._reached.set()
        assert self._go.wait(60)

    def _is_settled(self) -> bool:
        return self._reached.is_set() or not self._thread.is_alive()


class Lanes(RuleBasedStateMachine):
    """What may happen to one projection on one database."""

    kind: ClassVar[Name]

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.clock = Clock()
        self.numbers = count(1)
        self.appended = 0
        self.poison: dict[int, str] = {}
        self.purged: set[int] = set()
        self.held: Held | None = None
        self.fuse, self.other_fuse = Fuse(), Fuse()
        self.app, self.other = self._build(self.fuse), self._build(self.other_fuse)
        self.app.migrate()
        self.found = check_one(url, self.kind)

    # The feed

    @rule(stream=st.integers(1, 3), events=st.lists(events, min_size=1, max_size=6))
    def append(self, stream: int, events: list[tuple[str, str | None]]) -> None:
        stepped = []
        for row, decision in events:
            number = next(self.numbers)
            stepped.append(Moved(number, row))
            if decision is not None:
                self.poison[number] = decision
        self.appended += len(stepped)
        self.app.journal.append(f"lane-{stream}", stepped)

    @precondition(lambda self: self.appended)
    @rule(index=st.integers(0, 1_000), decision=decisions)
    def spoil(self, index: int, decision: str) -> None:
        self.poison[1 + index % self.appended] = decision

    @precondition(lambda self: self.poison)
    @rule(index=st.integers(0, 1_000))
    def heal(self, index: int) -> None:
        del self.poison[sorted(self.poison)[index % len(self.poison)]]

    @precondition(lambda self: any(at is not None for at in self.found.due_at.values()))
    @rule()
    def pass_time(self) -> None:
        self.clock.advance(LATER_SECONDS)

    # Runners

    @precondition(lambda self: self._lease_is_free())
    @rule()
    def work(self) -> None:
        arrived = self._run()
        self.all_is_accounted_for()
        if arrived:
            found = self.found
            assert found.position == found.head, found
            due = [lane for lane, at in found.due_at.items() if at and at <= self.clock.now()]
            assert not due, f"{due} are due, and were left; {found}"

    @precondition(lambda self: self._lease_is_free())
    @rule(blow=st.sampled_from(BLOWS), commits=st.integers(1, 8))
    def crash(self, blow: Blow, commits: int) -> None:
        self.fuse.set(blow, commits)
        self._run()
        self.fuse.clear()

    @precondition(lambda self: self.held is None)
    @rule(commits=st.integers(1, 8))
    def hold(self, commits: int) -> None:
        supervisor = self.other.supervise(until=self.other.journal.head())
        held = Held(supervisor.workers[0], self.other_fuse, commits)
        self.other_fuse.clear()
        if held.stands:
            self.held = held

    @precondition(lambda self: self.held is not None and self.held.has_lease)
    @rule(by_operator=st.booleans())
    def make_zombie(self, by_operator: bool) -> None:
        assert self.held is not None
        take_lease(self.url, (lambda: self.app.depose(self.kind)) if by_operator else None)
        self.held.has_lease = False

    @precondition(lambda self: self.held is not None)
    @rule()
    def let_go(self) -> None:
        assert self.held is not None
        self.held.let_go()
        self.held = None

    @precondition(lambda self: self.held is None and self.appended)
    @rule(commits=st.integers(2, 8), by_operator=st.booleans(), is_well=st.booleans())
    def overtake(self, commits: int, by_operator: bool, is_well: bool) -> None:
        """All that it takes to have a zombie whose batch is no longer true."""
        self.hold(commits)
        if self.held is not None:
            self.make_zombie(by_operator)
            if is_well:
                self.poison.clear()
            self.work()
            self.all_is_accounted_for()
            self.let_go()

    @precondition(lambda self: self.held is None and self.appended)
    @rule(commits=st.integers(2, 8), which=which, resolves=st.booleans())
    def interfere(self, commits: int, which: int | str | None, resolves: bool) -> None:
        """An operator changes the queue while a runner is about to."""
        self.hold(commits)
        if resolves:
            self.resolve(which)
        else:
            self.requeue(which)
        if self.held is not None:
            self.all_is_accounted_for()
            self.let_go()

    # Operators

    @precondition(lambda self: self.found.outstanding)
    @rule(which=which)
    def requeue(self, which: int | str | None) -> None:
        if selection := self._select(which):
            self.app.queue.requeue(selection, by="an operator")

    @precondition(lambda self: self.found.outstanding)
    @rule(which=which, later=st.booleans())
    def mark_retrying(self, which: int | str | None, later: bool) -> None:
        at = self.clock.now() + timedelta(seconds=LATER_SECONDS) if later else None
        if selection := self._select(which):
            self.app.queue.mark_retrying(selection, by="an operator", at=at)

    @precondition(lambda self: self.found.outstanding)
    @rule(which=which)
    def resolve(self, which: int | str | None) -> None:
        if selection := self._select(which):
            self.app.queue.resolve(selection, by="an operator")

    @precondition(lambda self: len(self.found.statuses) > len(self.found.outstanding))
    @rule(which=which)
    def purge(self, which: int | str | None) -> None:
        if selection := self._select(which):
            change = self.app.queue.purge(selection, by="an operator")
            self.purged |= {item.position for item in change.items}

    @precondition(lambda self: self.found.position < self.found.head)
    @rule(ahead=st.integers(0, 5))
    def add(self, ahead: int) -> None:
        coming = [position for position in self.found.lanes if position > self.found.position]
        # Refused where it has never run, or where the event is in the queue already.
        with suppress(HoldfastError):
            self.app.queue.add(self.kind, coming[ahead % len(coming)], by="an operator")

    @rule()
    def pause(self) -> None:
        """Nothing is done while it is paused, in whichever process."""
        self.app.pause(self.kind, by="an operator")
        if self.held is not None:
            self.let_go()
        else:
            assert not self._run()
        before = self.found
        self.all_is_accounted_for()
        assert self.found.applied == before.applied
        assert self.found.statuses == before.statuses
        assert self.found.position == before.position
        self.app.resume(self.kind, by="an operator")

    @rule(sure=st.integers(0, 5))
    def reset(self, sure: int) -> None:
        if sure == 0:
            self.app.reset(self.kind)
            self.purged.clear()

    # What must hold

    @invariant()
    def all_is_accounted_for(self) -> None:
        self.found = check_one(self.url, self.kind, now=self.clock.now(), purged=self.purged)

    def teardown(self) -> None:
        try:
            self._finish()
        finally:
            if self.held is not None:
                self.held.let_go()
            self.app.close()
            self.other.close()

    def _finish(self) -> None:
        """Nothing fails any more: in the end nothing waits."""
        self.poison.clear()
        if self.held is not None:
            self.held.let_go()
            self.held = None
        for _ in range(MAX_ROUNDS):
            assert self._run()
            self.all_is_accounted_for()
            if not self.app.queue.requeue(QueueSelection(), by="an operator", limit=1_000).items:
                break
            self.clock.advance(LATER_SECONDS)
        check_one(self.url, self.kind, purged=self.purged, complete=True)

    def _build(self, fuse: Fuse) -> App:
        return build_app(
            self.url,
            self.kind,
            after=self._spoil,
            policy=Policy(on_error=self._decide),
            poll=POLL,
            clock=self.clock,
            open_app=fuse.open,
        )

    def _spoil(self, event: Event[Moved]) -> None:
        if event.data.amount in self.poison:
            raise Poisoned(event.data.amount)

    def _decide(self, failure: Failure) -> Decision:
        # An event that no test has spoilt is blamed for a crash.
        return DECISIONS[self.poison.get(failure.event.data.amount, "park")]

    def _run(self) -> bool:
        """Runs until it has arrived, faulted or crashed; returns whether it has arrived."""
        (run,) = self.app.supervise(until=self.app.journal.head()).workers
        try:
            run.run()
        except Crash:
            return False
        if run.fault is not None:
            is_poison = isinstance(run.fault.error, Poisoned)
            assert is_poison or "paused" in run.fault.error_message, run.fault
        return run.fault is None

    def _lease_is_free(self) -> bool:
        return self.held is None or not self.held.has_lease

    def _select(self, which: int | str | None) -> QueueSelection | None:
        if which is None:
            return QueueSelection()
        if isinstance(which, str):
            return QueueSelection(lane=which)
        items: list[QueueItem] = list(self.app.queue.list())
        return QueueSelection(ids=(items[which % len(items)].id,)) if items else None


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few events make many transactions."""
    use_limits(
        monkeypatch,
        chunk_events=5,
        batch_events=5,
        fold_events=250,
        lookup_events=2,
        drain_events=3,
        standby_seconds=0.01,
    )


def length(examples: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=35, suppress_health_check=list(HealthCheck)
    )


@pytest.mark.parametrize("kind", LANE_KINDS)
def test_lanes_on_sqlite(kind: Name) -> None:
    run_state_machine_as_test(on_sqlite(kind), settings=length(12))


@pytest.mark.parametrize("kind", LANE_KINDS)
def test_lanes_on_postgres(postgres_server: Databases, kind: Name) -> None:
    run_state_machine_as_test(on_postgres(postgres_server, kind), settings=length(5))


@pytest.mark.soak
@pytest.mark.parametrize("kind", LANE_KINDS)
def test_many_lanes_on_sqlite(kind: Name) -> None:
    run_state_machine_as_test(on_sqlite(kind), settings=length(1_000))


@pytest.mark.soak
@pytest.mark.parametrize("kind", LANE_KINDS)
def test_many_lanes_on_postgres(postgres_server: Databases, kind: Name) -> None:
    run_state_machine_as_test(on_postgres(postgres_server, kind), settings=length(500))


def on_sqlite(of_kind: Name) -> type[Lanes]:
    """Each history on a file of its own."""

    class OnSqlite(Lanes):
        kind = of_kind

        def __init__(self) -> None:
            self.folder = tempfile.TemporaryDirectory()
            super().__init__(f"sqlite:///{self.folder.name}/journal.db")

        def teardown(self) -> None:
            with self.folder:
                super().teardown()

    return OnSqlite


def on_postgres(server: Databases, of_kind: Name) -> type[Lanes]:
    """Each history on a database of its own."""

    class OnPostgres(Lanes):
        kind = of_kind

        def __init__(self) -> None:
            super().__init__(server.create_database())

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                server.drop_database(self.url)

    return OnPostgres
