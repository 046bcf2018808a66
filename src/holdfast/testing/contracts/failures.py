"""What each decision does to a failing event, its lane, and everything else."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.core import runner
from holdfast.core.backoff import Backoff
from holdfast.core.errors import HoldfastError, ProjectionFaulted
from holdfast.core.event import Event, NewEvent
from holdfast.core.failure import Failure
from holdfast.core.policy import (
    Breaker,
    Decision,
    Fatal,
    Limits,
    Park,
    Policy,
    Retry,
    RetryBudget,
    Skip,
)
from holdfast.core.projection import Projection, TableProjection, Tx, on
from holdfast.core.queue import QueueItem, QueueSelection
from holdfast.core.signals import (
    BreakerOpened,
    CallbackFailed,
    Died,
    Drained,
    Failed,
    Faulted,
    Parked,
    Queued,
    Recovered,
    Retrying,
    Signal,
    Skipped,
)
from holdfast.testing.contracts.samples import (
    WAIT_SECONDS,
    Counted,
    eventually,
    execute,
    fetch,
    status_of,
)

SOON = Backoff(max_attempts=3, delay_seconds=0.001, max_delay_seconds=0.001)
LATER = Backoff(max_attempts=None, delay_seconds=3600, max_delay_seconds=3600)
ALL = QueueSelection()


@dataclass
class Sum:
    """A row that shows what was applied, how often and in which order."""

    stream: str
    seen: str = ""


class Poison:
    """What handlers fail at, and what the app has said about it."""

    def __init__(self, app: App) -> None:
        self.bad: set[int] = set()
        self.signals: list[Signal] = []
        self.changed = threading.Condition()
        app.listen(self._hear)

    def check(self, n: int) -> None:
        if n in self.bad:
            raise ValueError(f"no {n}, please")

    def of(self, kind: type) -> list[Any]:
        """The signals of a kind."""
        return [signal for signal in self.signals if isinstance(signal, kind)]

    def wait_for(self, kind: type, count: int = 1) -> None:
        """Returns when so many signals of a kind have come."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(kind)) >= count, WAIT_SECONDS)

    def _hear(self, signal: Signal) -> None:
        with self.changed:
            self.signals.append(signal)
            self.changed.notify_all()


class FailureContract:
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    placeholder: ClassVar[str]

    @pytest.fixture
    def poison(self, app: App) -> Poison:
        return Poison(app)

    @pytest.fixture(params=["table", "handler"])
    def register(
        self, app: App, poison: Poison, request: pytest.FixtureRequest
    ) -> Callable[..., None]:
        """Registers the projection `sums` of a kind, with a policy."""
        mark = self.placeholder

        def register(policy: Policy) -> None:
            if request.param == "table":

                @app.projection(name="sums", policy=policy)
                class Sums(TableProjection[Sum]):
                    @on(Counted)
                    def counted(self, row: Sum, event: Event[Counted]) -> None:
                        row.seen += f" {event.data.n}"
                        poison.check(event.data.n)
            else:

                @app.projection(name="sums", policy=policy)
                class BySql(Projection):
                    tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

                    @on(Counted)
                    def counted(self, event: Event[Counted], tx: Tx) -> None:
                        values = (event.stream, f" {event.data.n}")
                        tx.execute(f"INSERT INTO sums VALUES ({mark}, {mark})", values)
                        poison.check(event.data.n)

        return register

    def seen(self, app: App) -> dict[str, list[int]]:
        """The numbers that were applied to each stream, in order."""
        found: dict[str, list[int]] = {}
        for stream, text in fetch(app, "SELECT stream, seen FROM sums"):
            found.setdefault(stream, []).extend(int(n) for n in text.split())
        return found

    def append(self, app: App, *numbers: int) -> None:
        """Each number goes to its own lane: 1, 11 and 21 to stream 1."""
        for n in numbers:
            app.journal.append(str(n % 10), [Counted(n)])

    def requeue_all(self, app: App) -> None:
        """Puts everything back, and catches up."""
        app.queue.requeue(ALL, by="me")
        app.catch_up()

    # Park

    def test_a_parked_event_closes_its_lane_alone(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {11}
        self.append(app, 1, 2, 11, 12, 21, 22)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2, 12, 22]}
        assert _shown(app) == [("dead", "1", 11, 1), ("pending", "1", 21, 0)]
        self.append(app, 31, 32)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2, 12, 22, 32]}
        assert [n for _, _, n, _ in _shown(app)] == [11, 21, 31]
        status = status_of(app, "sums")
        assert (status.state, status.position) == ("stopped", app.journal.head())
        assert status.events_processed == 5
        counts = Counter(type(signal) for signal in poison.signals)
        assert (counts[Parked], counts[Queued]) == (1, 2)

    def test_a_lane_comes_back_in_order_while_more_comes_in(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {11, 31}
        self.append(app, 1, 11, 21, 31, 41)
        app.catch_up()
        poison.bad = {31}
        assert [item.position for item in app.queue.requeue(ALL, by="me").items] == [2]
        self.append(app, 51, 2)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 11, 21], "2": [2]}
        assert _shown(app) == [
            ("dead", "1", 31, 1),
            ("pending", "1", 41, 0),
            ("pending", "1", 51, 0),
        ]
        poison.bad = set()
        self.requeue_all(app)
        assert self.seen(app) == {"1": [1, 11, 21, 31, 41, 51], "2": [2]}
        assert app.queue.list() == []
        assert fetch(app, "SELECT lane FROM holdfast_lane") == []
        assert poison.of(Drained)[-1].is_open
        assert status_of(app, "sums").events_processed == 7

    def test_a_head_that_fails_again_stays_where_it_is(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {11}
        self.append(app, 11, 21)
        app.catch_up()
        for attempt in (2, 3):
            app.queue.requeue(ALL, by="me")
            app.catch_up()
            head = app.queue.list()[0]
            assert (head.status, head.attempts, len(head.history)) == ("dead", 1, attempt)
            assert self.seen(app) == {}
        assert len(poison.of(Died)) == 3

    def test_a_resolved_head_lets_its_lane_go_on(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {11}
        self.append(app, 1, 11, 21, 31)
        app.catch_up()
        app.queue.resolve(QueueSelection(status="dead"), by="me", note="known")
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21, 31]}
        (item,) = app.queue.list()
        assert (item.status, item.resolved_by, item.note) == ("resolved", "me", "known")
        self.append(app, 41)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21, 31, 41]}

    def test_parked_heads_are_tried_again_by_themselves(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park(retry=SOON)))
        poison.bad = {11}
        self.append(app, 11, 21)
        with app.running():
            poison.wait_for(Died)
            head = app.queue.list()[0]
            assert (head.status, head.attempts, head.retries) == ("dead", 4, 3)
            poison.bad = set()
            app.queue.requeue(ALL, by="me")
            poison.wait_for(Drained)
        assert self.seen(app) == {"1": [11, 21]}

    def test_too_much_in_a_lane_stops_the_projection(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park(), limits=Limits(events_per_lane=2)))
        poison.bad = {11}
        self.append(app, 11, 21, 2, 31, 12)
        for _ in range(2):
            with pytest.raises(ProjectionFaulted, match="events_per_lane"):
                app.catch_up()
            assert self.seen(app) == {"2": [2]}
            assert [n for _, _, n, _ in _shown(app)] == [11, 21]
        poison.bad = set()
        self.requeue_all(app)
        assert self.seen(app) == {"1": [11, 21, 31], "2": [2, 12]}

    def test_too_many_lanes_stop_the_projection(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park(), limits=Limits(lanes=2)))
        poison.bad = {1, 2, 3}
        self.append(app, 1, 2, 3, 4)
        with pytest.raises(ProjectionFaulted, match=r"Limits\.lanes"):
            app.catch_up()
        assert [n for _, _, n, _ in _shown(app)] == [1, 2]
        assert self.seen(app) == {}
        app.queue.resolve(QueueSelection(lane="1"), by="me")
        app.catch_up()
        assert self.seen(app) == {"4": [4]}

    def test_a_queue_that_can_not_be_written_stops_everything(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        self.append(app, 1)
        app.catch_up()
        poison.bad = {11}
        self.append(app, 11, 2)
        execute(app, "ALTER TABLE holdfast_queue RENAME TO hidden")
        with pytest.raises(ProjectionFaulted, match="holdfast_queue"):
            app.catch_up()
        assert status_of(app, "sums").position == 1
        execute(app, "ALTER TABLE hidden RENAME TO holdfast_queue")
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2]}

    # Skip, Retry, Fatal

    def test_a_skipped_event_is_kept_with_its_error(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy.best_effort())
        poison.bad = {11, 12}
        self.append(app, 1, 11, 21, 12)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21]}
        assert _shown(app) == [("skipped", "1", 11, 1), ("skipped", "2", 12, 1)]
        item = app.queue.list()[0]
        assert (item.error_type, item.error_message) == ("ValueError", "no 11, please")
        assert "in check" in str(item.error_stacktrace)
        assert len(poison.of(Skipped)) == 2

    def test_a_retry_that_helps(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        def heal(failure: Failure) -> Decision:
            seen.append((failure.attempt, failure.position, failure.lane, failure.event.data.n))
            if failure.attempt == 2:
                poison.bad = set()
            return Retry()

        seen: list[tuple[int, int, str, int]] = []
        register(Policy(on_error=heal, backoff=SOON))
        poison.bad = {11}
        self.append(app, 1, 2, 11, 21, 12)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 11, 21], "2": [2, 12]}
        assert seen == [(1, 3, "1", 11), (2, 3, "1", 11)]
        assert app.queue.list() == []
        assert [r.attempt for r in poison.of(Retrying)] == [2, 3]
        assert [r.attempt for r in poison.of(Recovered)] == [3]

    @pytest.mark.parametrize("exhausted", [Fatal(), Skip(), Park()])
    def test_retries_end(
        self, app: App, poison: Poison, register: Callable[..., None], exhausted: Any
    ) -> None:
        register(Policy(on_error=Retry(), backoff=SOON, exhausted=exhausted))
        poison.bad = {11}
        self.append(app, 1, 11, 21, 2)
        if isinstance(exhausted, Fatal):
            with pytest.raises(ProjectionFaulted, match="no 11, please"):
                app.catch_up()
            assert self.seen(app) == {"1": [1]}
            assert app.queue.list() == []
        else:
            app.catch_up()
            status = "dead" if isinstance(exhausted, Park) else "skipped"
            item = app.queue.list()[0]
            assert (item.status, item.attempts, len(item.history)) == (status, 3, 3)
            later = [] if isinstance(exhausted, Park) else [21]
            assert self.seen(app) == {"1": [1, *later], "2": [2]}

    def test_a_wait_holds_nothing_and_ends_at_once(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        waiting = "SELECT 1 FROM holdfast_checkpoint WHERE waiting_until IS NOT NULL"
        register(Policy(on_error=Retry(LATER)))
        poison.bad = {11}
        self.append(app, 1, 11, 2)
        with app.running():
            eventually(lambda: fetch(app, waiting) != [])
            self.append(app, 3)  # On SQLite there is one writer: it must be free.
            self.check_nothing_is_held(app)
        assert self.seen(app) == {"1": [1]}
        assert not poison.of(Faulted)

    def check_nothing_is_held(self, app: App) -> None:
        """Checks that no transaction of a runner is open."""

    def test_a_policy_for_each_event_type(self, app: App, poison: Poison) -> None:
        @app.projection(
            policy=Policy(event_types={Counted: Policy(on_error=Skip()), "other": Policy()})
        )
        class Sums(TableProjection[Sum]):
            @on("*")
            def any(self, row: Sum, event: Event[Any]) -> None:
                raise ValueError("never")

        self.append(app, 1)
        app.catch_up()
        assert [status for status, *_ in _shown(app)] == ["skipped"]
        app.journal.append("1", [NewEvent({"n": 1}, type="other")])
        with pytest.raises(ProjectionFaulted):
            app.catch_up()

    def test_an_on_error_that_fails_is_fatal_and_shows_both(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        async def fail(_: Failure) -> Decision:
            await asyncio.sleep(0)
            raise KeyError("worse")

        register(Policy(on_error=fail))
        poison.bad = {11}
        self.append(app, 1, 11)
        with pytest.raises(ProjectionFaulted, match=r"worse.*no 11, please"):
            app.catch_up()
        assert self.seen(app) == {"1": [1]}

    # Parts

    def test_a_breaker_pauses_and_skips_nothing(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park(), breaker=Breaker(failures=3, pause_seconds=0.01)))
        poison.bad = {1, 2, 3, 4}
        self.append(app, 9, 1, 2, 3, 4)
        with app.running():
            poison.wait_for(BreakerOpened, 3)
            assert [n for _, _, n, _ in _shown(app)] == [1, 2]
            poison.bad = set()
            poison.wait_for(Recovered)
        app.catch_up()
        assert self.seen(app) == {"9": [9], "3": [3], "4": [4]}
        assert {signal.position for signal in poison.of(BreakerOpened)} == {4}

    def test_a_budget_ends_retries(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        backoff = Backoff.constant(0.002, max_attempts=None)
        budget = RetryBudget(seconds=0.01, window_seconds=3600)
        register(Policy(on_error=Retry(), backoff=backoff, exhausted=Skip(), budget=budget))
        poison.bad = {1, 2}
        self.append(app, 1, 2, 3)
        app.catch_up()
        assert self.seen(app) == {"3": [3]}
        first, second = app.queue.list()
        assert first.attempts > 3
        assert second.attempts == 1

    @pytest.mark.parametrize("works", [True, False])
    def test_a_fallback(self, app: App, works: bool) -> None:
        def fallback(row: Sum, event: Event[Counted]) -> None:
            row.seen += f" {-event.data.n}"
            if not works:
                raise KeyError("neither")

        @app.projection(policy=Policy(on_error=Park(), fallback=fallback))
        class Sums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n == 11:
                    raise ValueError("no 11, please")

        self.append(app, 1, 11, 21)
        app.catch_up()
        if works:
            assert self.seen(app) == {"1": [1, -11, 21]}
            assert app.queue.list() == []
        else:
            assert self.seen(app) == {"1": [1]}
            item = app.queue.list()[0]
            assert item.error_message == "no 11, please"
            assert "neither" in str(item.error_stacktrace)

    def test_a_handler_that_takes_too_long(self, app: App) -> None:
        never = asyncio.Event()

        @app.projection(policy=Policy(on_error=Park(), backoff=Backoff(timeout_seconds=0.05)))
        class Sums(TableProjection[Sum]):
            @on(Counted)
            async def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n == 11:
                    await never.wait()

        self.append(app, 1, 11, 2)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2]}
        assert app.queue.list()[0].error_type == "TimeoutError"

    def test_a_statement_that_takes_too_long(self, app: App) -> None:
        endless = self.endless

        @app.projection(policy=Policy(on_error=Park(), backoff=Backoff(timeout_seconds=0.2)))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute(f"INSERT INTO sums VALUES ('{event.stream}', '{event.data.n}')")
                if event.data.n == 11:
                    tx.fetch(endless)

        self.append(app, 1, 11, 2)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2]}
        assert app.queue.list()[0].error_type == "TimeoutError"

    endless: ClassVar[str] = (
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT 1 - x FROM n) SELECT max(x) FROM n"
    )

    def test_callbacks_come_after_the_commit_alone(self, app: App, poison: Poison) -> None:
        called: list[tuple[int, int]] = []

        async def call(n: int) -> None:
            called.append((n, len(fetch(app, "SELECT seen FROM sums"))))
            if n == 3:
                raise ValueError("too late")

        @app.projection(policy=Policy(on_error=Skip()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                n = event.data.n
                tx.execute(f"INSERT INTO sums VALUES ('{event.stream}', '{n}')")
                tx.after_commit(lambda: call(n))
                if n == 2:
                    raise ValueError("no 2, please")

        self.append(app, 1, 2, 3)
        app.catch_up()
        assert called == [(1, 2), (3, 2)]
        assert [signal.error for signal in poison.of(CallbackFailed)] == ["too late"]

    def test_a_tx_ends_with_its_handler(self, app: App) -> None:
        kept: list[Tx] = []
        later: list[str] = []

        @app.projection
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            @on(Counted)
            async def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute(f"INSERT INTO sums VALUES ('{event.stream}', '{event.data.n}')")
                for old in kept:
                    with pytest.raises(HoldfastError, match="has ended with its handler"):
                        old.execute("INSERT INTO sums VALUES ('late', '0')")
                    with pytest.raises(HoldfastError, match="has ended with its handler"):
                        app.journal.append("late", [Counted(0)], connection=old)
                    later.append(event.stream)
                kept.append(tx)

        self.append(app, 1, 2)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2]}
        assert later == ["2"]

    def test_a_wait_is_not_shortened_by_what_people_do(
        self,
        app: App,
        poison: Poison,
        register: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def decide(failure: Failure) -> Decision:
            return Park() if failure.event.data.n == 2 else Retry(LATER)

        monkeypatch.setattr(runner, "LOOK_SECONDS", 0.01)
        register(Policy(on_error=decide))
        poison.bad = {1, 2}
        self.append(app, 2, 1)
        with app.running():
            poison.wait_for(Retrying)
            poison.bad = {1}
            eventually(lambda: bool(app.queue.requeue(ALL, by="me").items))
            poison.wait_for(Drained)
            self.append(app, 3)
        assert self.seen(app) == {"2": [2]}
        assert [failed.attempt for failed in poison.of(Failed) if failed.position == 2] == [1]

    def test_other_event_types_don_t_close_a_breaker(self, app: App, poison: Poison) -> None:
        @app.projection(policy=Policy(on_error=Park(), breaker=Breaker(failures=3)))
        class Sums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                raise ValueError("no")

        for n in range(1, 6):
            self.append(app, n)
            app.journal.append("noise", [NewEvent({}, type="Noise")])
        with app.running():
            poison.wait_for(BreakerOpened)
        assert len(app.queue.list()) == 2

    def test_values_that_are_refused_cost_little(self, app: App) -> None:
        calls = 0

        @app.projection(policy=Policy(on_error=Skip()))
        class Sums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                nonlocal calls
                calls += 1
                row.seen += f" {event.data.n}"
                if event.data.n % 10 == 0:
                    row.stream = 7  # type: ignore[assignment]

        app.journal.append("1", [Counted(n) for n in range(1, 201)])
        app.catch_up()
        assert self.seen(app) == {"1": [n for n in range(1, 201) if n % 10]}
        assert calls <= 2 * 200

    def test_a_row_that_can_not_be_made_again_is_put_back(self, app: App) -> None:
        @dataclass
        class Picky:
            stream: str
            seen: str = ""

            def __post_init__(self) -> None:
                if self.seen:
                    raise ValueError("only empty ones can be made")

        @app.projection(name="sums", policy=Policy(on_error=Skip()))
        class Sums(TableProjection[Picky]):
            @on(Counted)
            def counted(self, row: Picky, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n == 11:
                    raise KeyError("no 11")

        self.append(app, 1, 11, 21)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21]}
        assert app.queue.list()[0].error_type == "KeyError"

    # Lanes

    def test_the_lane_is_the_row_where_the_key_is_not_the_stream(self, app: App) -> None:
        bad = {11}

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n in bad:
                    raise ValueError(f"no {event.data.n}, please")

        app.journal.append("x", [Counted(n) for n in (1, 2, 11, 12, 21)])
        app.journal.append("y", [Counted(n) for n in (31, 22)])
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2, 12, 22]}
        bad.clear()
        self.requeue_all(app)
        assert self.seen(app) == {"1": [1, 11, 21, 31], "2": [2, 12, 22]}

    def test_an_event_whose_row_is_not_known_holds_its_stream(self, app: App) -> None:
        known = False

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                if event.data.n == 11 and not known:
                    raise ValueError("whose?")
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"

        app.journal.append("x", [Counted(n) for n in (1, 11, 21)])
        app.journal.append("y", [Counted(31)])
        app.catch_up()
        assert self.seen(app) == {"1": [1, 31]}
        assert _shown(app) == [("dead", "x", 11, 1), ("pending", "x", 21, 0)]
        known = True
        self.requeue_all(app)
        # Their row has gone on with another stream: late is not lost.
        assert self.seen(app) == {"1": [1, 31, 11, 21]}
        self.append(app, 41)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 31, 11, 21, 41]}

    def test_a_mended_event_waits_for_the_lane_it_belongs_to(self, app: App) -> None:
        known, bad = False, {1}

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                if event.data.n == 11 and not known:
                    raise ValueError("whose?")
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n in bad:
                    raise ValueError(f"no {event.data.n}, please")

        app.journal.append("x", [Counted(1)])
        app.journal.append("y", [Counted(11)])
        app.catch_up()
        known = True
        app.queue.requeue(QueueSelection(lane="y"), by="me")
        app.catch_up()
        assert self.seen(app) == {}
        bad.clear()
        app.queue.requeue(QueueSelection(lane="1"), by="me")
        with app.running():
            eventually(lambda: self.seen(app) == {"1": [1, 11]})

    @pytest.mark.parametrize("lane", [None, 17, "", "x" * 513])
    def test_a_lane_that_is_none_is_a_fault(self, app: App, lane: Any) -> None:
        wrong = lane

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            def lane(self, event: Event[Any]) -> str:
                return wrong  # type: ignore[no-any-return]

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                raise ValueError("no")

        self.append(app, 1)
        with pytest.raises(ProjectionFaulted, match=r"lane\(\) returned"):
            app.catch_up()

    def test_a_projection_may_name_its_lanes(self, app: App) -> None:
        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            def lane(self, event: Event[Any]) -> str:
                return f"tens {event.data.n // 10}"

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n == 11:
                    raise ValueError("no 11, please")
                tx.execute(f"INSERT INTO sums VALUES ('{event.stream}', '{event.data.n}')")

        self.append(app, 1, 11, 12, 21)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21]}
        assert [lane for _, lane, _, _ in _shown(app)] == ["tens 1", "tens 1"]

    def test_every_other_event_fails(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {n for n in range(60) if n % 2}
        self.append(app, *range(60))
        app.catch_up()
        assert self.seen(app) == {str(n): list(range(n, 60, 10)) for n in range(0, 10, 2)}
        assert len(app.queue.list()) == 30
        poison.bad = set()
        self.requeue_all(app)
        assert self.seen(app) == {str(n): list(range(n, 60, 10)) for n in range(10)}


def _shown(app: App) -> list[tuple[str, str, int, int]]:
    """Status, lane, number and attempts of what is in the queue."""

    def shown(item: QueueItem) -> tuple[str, str, int, int]:
        return item.status, item.lane, int(item.data.strip('{"n: }')), item.attempts

    return [shown(item) for item in app.queue.list()]
