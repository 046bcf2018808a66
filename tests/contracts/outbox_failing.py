"""What fails in outbox delivery, and those who do not come back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.failure import WorkerLost
from holdfast.model.policy import Breaker, Fatal, Park, Policy, Retry, Skip
from holdfast.model.projection import Projection, Tx, on
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.store.claims import SUSPECT_LOSSES
from holdfast.runtime.store.queue_items import Attempt, QueueSelection
from holdfast.sql.values import as_json
from tests.contracts.outbox_samples import ALL, AT_ONCE, SUMS, OutboxSample, note
from tests.contracts.samples import WAIT_SECONDS, Counted, eventually, execute, fetch, status_of


class OutboxFailingContract(OutboxSample):
    """What fails in outbox delivery, and those who do not come back."""

    def test_a_head_that_fails_closes_its_lane_alone(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Park()))
        bad.add(1)
        for n in range(30):
            app.journal.append(str(n % 10), [Counted(n)])
        app.catch_up()
        rest = {str(n): list(range(n, 30, 10)) for n in range(10)}
        assert self.seen(app) == {s: numbers for s, numbers in rest.items() if s != "1"}
        assert self.items(app) == [("1", "dead", 1), ("1", "pending", 0), ("1", "pending", 0)]
        assert status_of(app, "sums").closed_lanes == 1
        bad.clear()
        app.queue.requeue(ALL, by="me")
        app.catch_up()
        assert self.seen(app) == rest
        self.check_empty(app)

    def test_what_is_tried_again_leaves_workers_free_for_what_is_new(self, app: App) -> None:
        bad, mark = {"a": 0, "b": 0, "c": 0}, self.placeholder
        again, may_end = threading.Event(), threading.Event()
        policy = Policy(on_error=Retry(), backoff=replace(AT_ONCE, max_attempts=None))

        @app.projection(name="sums", delivery="outbox", concurrency=2, policy=policy)
        class Sums(Projection):
            tables: ClassVar = {"sums": SUMS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.stream in bad:
                    bad[event.stream] += 1
                    if bad[event.stream] > 1:
                        again.set()
                        assert may_end.wait(WAIT_SECONDS)
                    raise ValueError("bad")
                note(tx, event, mark)

        for stream in bad:
            app.journal.append(stream, [Counted(1)])
        with app.running():
            assert again.wait(WAIT_SECONDS)
            eventually(lambda: all(bad.values()))
            app.journal.append("new", [Counted(2)])
            eventually(lambda: self.seen(app) == {"new": [2]})
            may_end.set()

    def test_attempts_are_counted_and_end(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Retry(), backoff=AT_ONCE, exhausted=Park()))
        bad.add(1)
        app.journal.append("a", [Counted(1), Counted(2)])
        with app.running():
            eventually(lambda: self.items(app) == [("a", "dead", 3), ("a", "pending", 0)])
        item = app.queue.list()[0]
        assert [attempt.error_type for attempt in item.history] == ["ValueError"] * 3
        assert app.queue.list(QueueSelection(lane="a", version=1)) == [item]
        bad.clear()
        app.queue.resolve(QueueSelection(lane="a", version=1), by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [2]}

    def test_eight_attempts_by_default(self, app: App, register: Callable[..., None]) -> None:
        register()
        (definition,) = app._catalog
        backoff = definition.policy.backoff
        assert (backoff.max_attempts, backoff.delay_seconds) == (8, 1.0)
        assert (backoff.multiplier, backoff.max_delay_seconds) == (2.0, 300.0)
        assert definition.policy.exhausted == Park()

    def test_skip_leaves_a_row_and_goes_on(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Skip()))
        bad.add(2)
        app.journal.append("a", [Counted(1), Counted(2), Counted(3)])
        app.catch_up()
        assert self.seen(app) == {"a": [1, 3]}
        assert self.items(app) == [("a", "skipped", 1)]
        assert status_of(app, "sums").closed_lanes == 0

    def test_fatal_stops_the_projection(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Fatal()))
        bad.add(1)
        app.journal.append("a", [Counted(1), Counted(2)])
        with pytest.raises(ProjectionFaulted, match="no 1, please"):
            app.catch_up()
        assert status_of(app, "sums").state == "faulted"
        bad.clear()
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2]}
        assert status_of(app, "sums").state != "faulted"
        self.check_empty(app)

    def test_a_claim_that_somebody_else_has_can_not_be_finished(self, app: App) -> None:
        """A worker that was taken for dead wakes up, and changes nothing."""
        inside, go_on = threading.Event(), threading.Event()
        tries: list[int] = []
        mark = self.placeholder

        @app.projection(name="sums", delivery="outbox")
        class BySql(Projection):
            tables: ClassVar = {"sums": SUMS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tries.append(event.data.n)
                if len(tries) == 1:
                    inside.set()
                    assert go_on.wait(30)
                note(tx, event, mark)

        app.journal.append("a", [Counted(1)])
        with app.running():
            assert inside.wait(30)
            # Its lease is over, and somebody else has the lane.
            execute(app, "UPDATE holdfast_lane SET token = 'another'")
            go_on.set()
            eventually(lambda: len(tries) == 1)
        assert self.seen(app) == {}
        assert self.items(app) == [("a", "processing", 1)]

    @pytest.mark.parametrize("losses", range(SUSPECT_LOSSES + 1))
    def test_a_worker_that_does_not_come_back_counts_if_it_had_one_event(
        self, app: App, register: Callable[..., None], losses: int
    ) -> None:
        """Before, the event had others beside it, and one of them may be the cause."""
        register(policy=Policy(on_error=Park()))
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        app.journal.append("a", [Counted(2)])
        history = as_json([Attempt(datetime.now(UTC), WorkerLost.__name__, "", "")] * losses)
        execute(
            app,
            f"UPDATE holdfast_queue SET status = 'processing', attempts = 1, history = '{history}'",
        )
        execute(app, "UPDATE holdfast_lane SET token = 'gone'")
        app.catch_up()
        if losses < SUSPECT_LOSSES:
            assert self.seen(app) == {"a": [1, 2]}
            self.check_empty(app)
            return
        (item,) = app.queue.list()
        assert (item.status, item.attempts, item.error_type) == ("dead", 1, "WorkerLost")
        assert self.seen(app) == {"a": [1]}

    @pytest.mark.parametrize("token", ["'gone'", "NULL"])
    def test_what_a_clock_has_put_off(self, app: App, token: str) -> None:
        """A worker was lost, or an event was appended, and then the clock was set back."""

        @app.projection(delivery="outbox")
        class Calls(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None: ...

        app.migrate()
        app.journal.append("a", [Counted(1)])
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        execute(app, f"UPDATE holdfast_lane SET token = {token}, due_at = '{later}'")
        due = "SELECT due_at FROM holdfast_lane"
        before = fetch(app, due)
        with app.running():
            eventually(lambda: fetch(app, due) != before)

    def test_a_lost_claim_that_is_given_back_still_counts(
        self, app: App, register: Callable[..., None]
    ) -> None:
        """Else an event that ends its process could do so more often than its policy allows."""
        register()
        app.journal.append("a", [Counted(1)])
        app.migrate()
        relay = app._relay(app._catalog.find("sums"))
        assert relay.prepare()
        with closing(app._open_session()) as session, closing(Invoker()) as invoker:
            executor = relay.executor(session, invoker)
            (first,) = executor.claims.claim("first", lanes=1, again=1, items=1)
            assert not first.was_lost
            execute(
                app, "UPDATE holdfast_lane SET due_at = (SELECT recorded_at FROM holdfast_event)"
            )
            for token in ("second", "third"):
                (lost,) = executor.claims.claim(token, lanes=1, again=1, items=1)
                assert lost.was_lost
                executor.give_back(token, [lost])
                assert self.items(app) == [("a", "processing", 1)]

    @pytest.fixture
    def quick_leases(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A claim ends after a second, unless it is renewed."""
        for module in ("runtime.outbox.relay", "runtime.outbox.claim_renewal", "sql.outbox.claims"):
            monkeypatch.setattr(f"holdfast.{module}.LEASE_SECONDS", 1.0)

    @pytest.mark.parametrize("way", ["stopping", "inline", "replay", "suspect"])
    @pytest.mark.usefixtures("quick_leases")
    def test_a_slow_handler_keeps_its_claim(self, app: App, way: str) -> None:
        """While its worker stops, beside an append, replayed, and alone as a suspect."""
        lease = "SELECT due_at FROM holdfast_lane"
        seen: set[str] = set()
        runs: list[int] = []

        @app.projection(delivery="outbox", inline_seconds=0.01 if way == "inline" else None)
        class Slow(Projection):
            calls_out = True

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                runs.append(event.data.n)

                def is_renewed_twice() -> bool:
                    seen.add(str(fetch(app, lease)))
                    return len(seen) >= 3

                eventually(is_renewed_twice)  # It would have ended otherwise.

        app.migrate()
        if way == "stopping":
            app.journal.append("a", [Counted(1)])
            with app.running():
                eventually(lambda: bool(runs))
        elif way == "inline":
            with app.running():
                app.journal.append("a", [Counted(1)])
                eventually(lambda: not app.queue.list())
        elif way == "replay":
            app.journal.append("a", [Counted(1)])
            (item,) = app.queue.list()
            assert app.outbox.replay(item.id, by="me") is None
        else:
            app.journal.append("a", [Counted(1)])
            lost = Attempt(datetime.now(UTC), WorkerLost.__name__, "it ended", "")
            history = as_json([lost] * SUSPECT_LOSSES)
            execute(app, f"UPDATE holdfast_queue SET attempts = 2, history = '{history}'")
            app.catch_up()
        eventually(lambda: not app.queue.list())
        assert runs == [1]

    def test_what_is_not_tried_after_a_fatal_event_is_given_back(self, app: App) -> None:
        tried: list[str] = []

        @app.projection(delivery="outbox", concurrency=1, policy=Policy(on_error=Fatal()))
        class Stops(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tried.append(event.stream)
                raise ValueError("no")

        for stream in "abc":
            app.journal.append(stream, [Counted(1)])
        # All of them have been tried before, so that each is tried alone.
        app.migrate()
        execute(app, "UPDATE holdfast_queue SET attempts = 1")
        claimed = "SELECT count(*) FROM holdfast_lane WHERE token IS NOT NULL"
        for times in (1, 2):
            with pytest.raises(ProjectionFaulted):
                app.catch_up()
            assert len(tried) == times
            assert fetch(app, claimed) == [(0,)]
            assert "processing" not in {item.status for item in app.queue.list()}
        assert sorted(item.attempts for item in app.queue.list()) == [1, 2, 2]

    def test_a_breaker_stops_all_hands(self, app: App) -> None:
        tried: list[str] = []
        later = Backoff(max_attempts=8, delay_seconds=3600, max_delay_seconds=3600)
        breaker = Breaker(failures=3, pause_seconds=3600)
        policy = Policy(on_error=Retry(), backoff=later, breaker=breaker)

        @app.projection(delivery="outbox", concurrency=2, policy=policy)
        class Breaks(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tried.append(event.stream)
                raise ValueError("no")

        for n in range(20):
            app.journal.append(str(n), [Counted(1)])
        app.migrate()
        execute(app, "UPDATE holdfast_queue SET attempts = 1")
        with app.running():
            eventually(lambda: len(tried) >= 3)
            free = "SELECT count(*) FROM holdfast_lane WHERE token IS NOT NULL"
            eventually(lambda: fetch(app, free) == [(0,)])
        assert len(tried) <= 4

    def test_inline_work_leaves_a_fault_as_it_is(self, app: App) -> None:
        @app.projection(delivery="outbox", inline_seconds=30.0, policy=Policy(on_error=Fatal()))
        class Stops(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n == 1:
                    raise ValueError("no")

        app.migrate()
        execute(app, "UPDATE holdfast_outbox SET mode = 'off'")
        app.journal.append("a", [Counted(1)])
        execute(app, "UPDATE holdfast_outbox SET mode = 'live'")
        with pytest.raises(ProjectionFaulted):
            app.catch_up()
        app.journal.append("b", [Counted(2)])
        assert status_of(app, "stops").state == "faulted"
