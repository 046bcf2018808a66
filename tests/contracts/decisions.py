"""What the other decisions do, and who makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.event import Event, NewEvent
from holdfast.model.failure import Failure
from holdfast.model.policy import Decision, Fatal, Park, Policy, Retry, Skip
from holdfast.model.projection import TableProjection, on
from holdfast.runtime.signals import Failed, Faulted, Recovered, Skipped
from tests.contracts.failing import IN_PYTHON, LATER, SOON, FailingSums, Poison, Sum, shown_items
from tests.contracts.samples import Counted, eventually, fetch


class DecisionContract(FailingSums):
    """Part of the contract about failing events."""

    @IN_PYTHON
    def test_a_skipped_event_is_kept_with_its_error(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy.best_effort())
        poison.bad = {11, 12}
        self.append(app, 1, 11, 21, 12)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21]}
        assert shown_items(app) == [("skipped", "1", 11, 1), ("skipped", "2", 12, 1)]
        item = app.queue.list()[0]
        assert (item.error_type, item.error_message) == ("ValueError", "no 11, please")
        assert "in check" in str(item.error_stacktrace)
        assert len(poison.of(Skipped)) == 2

    @IN_PYTHON
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
        assert [(f.attempt, f.decision) for f in poison.of(Failed)] == [(1, "retry"), (2, "retry")]
        assert [r.attempt for r in poison.of(Recovered)] == [3]

    @pytest.mark.parametrize("exhausted", [Fatal(), Skip(), Park()])
    def test_retries_end(
        self, app: App, poison: Poison, register: Callable[..., None], exhausted: Any
    ) -> None:
        register(Policy(on_error=Retry(), backoff=SOON, exhausted=exhausted))
        poison.bad = {11}
        self.append(app, 1, 11, 21, 2)
        if isinstance(exhausted, Fatal):
            with pytest.raises(ProjectionFaulted, match=r"no 11, please|sums"):
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
        assert [status for status, *_ in shown_items(app)] == ["skipped"]
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
        with pytest.raises(ProjectionFaulted, match=r"worse.*(no 11, please|sums)"):
            app.catch_up()
        assert self.seen(app) == {"1": [1]}
