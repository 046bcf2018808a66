"""A runner that was overtaken while it drained a lane changes nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast import App, Event, QueueSelection
from holdfast.runtime.signals import Signal, Started
from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.checks import check_one
from tests.world.fuse import Fuse
from tests.world.gate import take_lease
from tests.world.spoilt import PARKS, Poisoned


class Gate:
    """Where a runner stands still, and is let go."""

    def __init__(self) -> None:
        self.reached, self._go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._go.wait(60)

    def let_go(self) -> None:
        self._go.set()


def park_two(app: App, spoilt: set[int]) -> None:
    """One that is due, and one behind it."""
    spoilt.add(1)
    app.journal.append("lane-1", [Moved(1, "x"), Moved(2, "x")])
    app.catch_up()
    spoilt.clear()
    app.queue.requeue(QueueSelection(), by="an operator")


@contextmanager
def standing(app: App, gate: Gate) -> Iterator[None]:
    """The app's runner stands at the gate in this block, and has ended after it."""
    (runner,) = app.supervise(until=app.journal.head()).workers
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        wait_until(gate.reached.is_set, 30, "the runner to stand still")
        yield
    finally:
        gate.let_go()
        thread.join()


@pytest.mark.parametrize("kind", ["totals", "keyed"])
@pytest.mark.parametrize("outcome", ["applied", "failed"])
def test_overtaken_before_its_transaction(store_url: str, kind: Name, outcome: str) -> None:
    spoilt: set[int] = set()
    gate, fuse = Gate(), Fuse()

    def fail(event: Event[Moved]) -> None:
        if event.data.amount in spoilt:
            raise Poisoned

    def stand(event: Event[Moved]) -> None:
        if not gate.reached.is_set():
            fuse.set("hold", 1, hold=gate)
        if outcome == "failed":
            raise Poisoned

    with (
        build_app(store_url, kind, policy=PARKS, after=fail) as app,
        build_app(store_url, kind, policy=PARKS, after=stand, open_app=fuse.open) as zombie,
    ):
        park_two(app, spoilt)
        with standing(zombie, gate):
            take_lease(store_url)
            if outcome == "applied":
                spoilt.add(2)
            app.catch_up()
            before = check_one(store_url, kind)
            fuse.clear()
            outcome = "applied"
        assert check_one(store_url, kind) == before
        spoilt.clear()
        app.queue.requeue(QueueSelection(), by="an operator")
        app.catch_up()
        assert check_one(store_url, kind, complete=True).applied == [1, 2]


def test_overtaken_inside_its_transaction(postgres_url: str) -> None:
    spoilt: set[int] = set()
    gate, fuse = Gate(), Fuse()

    def fail(event: Event[Moved]) -> None:
        if event.data.amount in spoilt:
            raise Poisoned

    with (
        build_app(postgres_url, "ledger", policy=PARKS, after=fail) as app,
        build_app(postgres_url, "ledger", policy=PARKS, open_app=fuse.open) as zombie,
    ):
        park_two(app, spoilt)
        fuse.set("hold inside", 1, hold=gate)
        with standing(zombie, gate):
            take_lease(postgres_url)
            app.catch_up()
            before = check_one(postgres_url, "ledger")
            assert before.applied == [1, 2]
        assert check_one(postgres_url, "ledger") == before
        assert check_one(postgres_url, "ledger", complete=True).applied == [1, 2]


@pytest.mark.parametrize("kind", ["totals", "ledger"])
@pytest.mark.parametrize("action", ["requeue", "resolve"])
def test_operator_is_faster_than_a_runner_that_parks(
    store_url: str, kind: Name, action: str
) -> None:
    """What a runner knew of a lane when it began must not be written over what an operator did."""
    spoilt: set[int] = {1}
    gate, fuse = Gate(), Fuse()

    def fail(event: Event[Moved]) -> None:
        if event.data.amount in spoilt:
            raise Poisoned

    def arm(signal: Signal) -> None:
        if isinstance(signal, Started) and not gate.reached.is_set():
            fuse.set("hold", 2, hold=gate)  # After the tables are prepared.

    with (
        build_app(store_url, kind, policy=PARKS, after=fail) as app,
        build_app(store_url, kind, policy=PARKS, after=fail, open_app=fuse.open) as other,
    ):
        other.listen(arm)
        app.journal.append("lane-1", [Moved(1)])
        app.catch_up()
        assert check_one(store_url, kind).with_status("dead") == [1]
        app.journal.append("lane-1", [Moved(2)])
        app.journal.append("lane-2", [Moved(3)])  # Folded, and not written, when it is told.
        with standing(other, gate):
            spoilt.clear()
            getattr(app.queue, action)(QueueSelection(), by="an operator")
        found = check_one(store_url, kind, complete=True)
        assert sorted(found.applied) == ([1, 2, 3] if action == "requeue" else [2, 3])
