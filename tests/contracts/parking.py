"""What parking does to an event, its lane, and everything else."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.backoff import Backoff
from holdfast.model.policy import Limits, Park, Policy
from holdfast.runtime.signals import Died, Drained, Parked, Queued
from holdfast.runtime.store.queue_items import QueueSelection
from tests.contracts.failing import ALL, IN_PYTHON, SOON, FailingSums, Poison, shown_items
from tests.contracts.samples import WAIT_SECONDS, eventually, execute, fetch, status_of

AT_ONCE = Backoff(max_attempts=None, delay_seconds=1e-6, max_delay_seconds=1e-6)


class ParkingContract(FailingSums):
    """Part of the contract about failing events."""

    def test_a_parked_event_closes_its_lane_alone(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {11}
        self.append(app, 1, 2, 11, 12, 21, 22)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2, 12, 22]}
        assert shown_items(app) == [("dead", "1", 11, 1), ("pending", "1", 21, 0)]
        self.append(app, 31, 32)
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2, 12, 22, 32]}
        assert [n for _, _, n, _ in shown_items(app)] == [11, 21, 31]
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
        assert shown_items(app) == [
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
            eventually(lambda: not app.queue.list())
        assert self.seen(app) == {"1": [11, 21]}

    @pytest.mark.parametrize("register", ["table"], indirect=True)  # It holds no lock meanwhile.
    @pytest.mark.parametrize("parked", [(11, 12, 13), (11, 21, 31)], ids=["lanes", "events"])
    def test_a_healthy_event_waits_for_one_attempt_at_a_parked_one(
        self, app: App, poison: Poison, register: Callable[..., None], parked: tuple[int, ...]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = set(parked)
        self.append(app, *parked)
        app.catch_up()
        poison.bad = set()
        begun, may_end = threading.Semaphore(0), threading.Semaphore(0)

        def attempt(n: int) -> None:
            if n in parked:
                begun.release()
                assert may_end.acquire(timeout=WAIT_SECONDS)

        poison.check = attempt  # type: ignore[method-assign]
        app.queue.requeue(ALL, by="me")
        with app.running():
            assert begun.acquire(timeout=WAIT_SECONDS)
            self.append(app, 4)
            may_end.release()
            app.wait_for("sums", app.journal.head(), timeout_seconds=WAIT_SECONDS)
            assert self.seen(app)["4"] == [4]
            may_end.release(len(parked))

    @IN_PYTHON
    def test_catch_up_tries_lanes_that_are_always_due_once(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park(retry=AT_ONCE)))
        poison.bad = {1, 2, 3}
        self.append(app, 1, 2, 3, 4, 11)
        app.catch_up()
        assert self.seen(app) == {"4": [4]}
        assert {status for status, *_ in shown_items(app)} == {"failed", "pending"}
        poison.bad = {2}
        app.catch_up()
        assert self.seen(app) == {"1": [1, 11], "3": [3], "4": [4]}

    @IN_PYTHON
    def test_of_many_requeued_lanes_the_oldest_failure_comes_first(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {3, 1, 2}
        for n in (3, 1, 2):
            self.append(app, n)
            app.catch_up()
        poison.bad = set()
        self.requeue_all(app)
        assert [signal.lane for signal in poison.of(Drained)] == ["3", "1", "2"]

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
            assert [n for _, _, n, _ in shown_items(app)] == [11, 21]
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
        assert [n for _, _, n, _ in shown_items(app)] == [1, 2]
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
        assert fetch(app, "SELECT position FROM holdfast_checkpoint") == [(1,)]
        execute(app, "ALTER TABLE hidden RENAME TO holdfast_queue")
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2]}
