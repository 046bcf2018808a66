"""The parts a policy is made of: breaker, budget, fallback, limits of time; and callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.errors import HoldfastError, ProjectionFaulted
from holdfast.model.backoff import Backoff
from holdfast.model.event import Event, NewEvent
from holdfast.model.failure import Failure
from holdfast.model.policy import Breaker, Decision, Park, Policy, Retry, RetryBudget, Skip
from holdfast.model.projection import Projection, TableProjection, Tx, on
from holdfast.runtime.signals import (
    BreakerOpened,
    CallbackFailed,
    Drained,
    Failed,
    Recovered,
)
from tests.contracts.failing import ALL, LATER, FailingSums, Poison, Sum, shown_items
from tests.contracts.samples import Counted, eventually, execute, fetch, status_of
from tests.support.limits import set_limits


class PolicyContract(FailingSums):
    """Part of the contract about failing events."""

    def test_a_breaker_pauses_and_skips_nothing(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park(), breaker=Breaker(failures=3, pause_seconds=0.01)))
        poison.bad = {1, 2, 3, 4}
        self.append(app, 9, 1, 2, 3, 4)
        with app.running():
            poison.wait_for(BreakerOpened, 3)
            assert [n for _, _, n, _ in shown_items(app)] == [1, 2]
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

    @pytest.mark.parametrize("way", ["fetch", "write"])
    def test_a_statement_that_takes_too_long(
        self, app: App, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        endless = self.endless

        @app.projection(policy=Policy(on_error=Park(), backoff=Backoff(timeout_seconds=0.2)))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute(f"INSERT INTO sums VALUES ('{event.stream}', '{event.data.n}')")
                if event.data.n > 10:
                    getattr(tx, way)(endless)

        self.append(app, 1, 11, 2, 12)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2]}
        assert [item.error_type for item in app.queue.list()] == ["TimeoutError"] * 2

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

    def test_a_wait_is_not_shortened_by_what_operators_do(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        def decide(failure: Failure) -> Decision:
            return Park() if failure.event.data.n == 2 else Retry(LATER)

        set_limits(app, recheck_seconds=0.01)
        register(Policy(on_error=decide))
        poison.bad = {1, 2}
        self.append(app, 2, 1)
        with app.running():
            poison.wait_for(Failed, 2)
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

    def test_a_row_that_can_not_be_loaded_is_no_event_s_fault(self, app: App) -> None:
        """Rows are loaded for many events: none of them is parked or skipped for it."""

        @dataclass
        class Tagged:
            stream: str
            tags: list[int] = field(default_factory=list)

        @app.projection(name="tagged", policy=Policy.best_effort())
        class ByTags(TableProjection[Tagged]):
            @on(Counted)
            def counted(self, row: Tagged, event: Event[Counted]) -> None:
                row.tags.append(event.data.n)

        self.append(app, 1, 2, 3)
        app.catch_up()
        execute(app, """UPDATE tagged SET tags = '["broken"]' WHERE stream = '2'""")
        self.append(app, 1, 2, 3)
        with pytest.raises(ProjectionFaulted, match="tagged"):
            app.catch_up()
        assert app.queue.list() == []
        assert status_of(app, "tagged").position == 3

    def test_text_that_is_none_is_the_event_s_own_fault(self, app: App) -> None:
        """A lone surrogate, in a row or in its key."""

        @app.projection(policy=Policy(on_error=Skip()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                return "\ud83d" if event.data.n == 3 else "1"

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += " \ud83d" if event.data.n == 2 else f" {event.data.n}"

        app.journal.append("1", [Counted(n) for n in range(1, 5)])
        app.catch_up()
        assert self.seen(app) == {"1": [1, 4]}
        errors = [(item.position, item.error_type) for item in app.queue.list()]
        assert errors == [(2, "ValueError"), (3, "ValueError")]

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
