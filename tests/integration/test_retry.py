"""A projection that has faulted goes on in workers that run, when an operator says so."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast import (
    App,
    Event,
    Fatal,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    QueueSelection,
    Tx,
    on,
)
from holdfast.runtime.signals import BegunAgain, LeaseLost, Signal, Started
from tests.contracts.samples import Counted
from tests.support.limits import set_limits
from tests.support.postgres import wait_until

WAIT_SECONDS = 30.0
KINDS: dict[str, dict[str, Any]] = {
    "log": {},
    "shards": {"shards": 2},
    "outbox": {"delivery": "outbox", "concurrency": 2},
}


class Sums:
    """A projection that fails at some numbers, and what it has applied."""

    def __init__(self, app: App, **settings: Any) -> None:
        self.app, self.broken, self.applied = app, {2}, list[int]()

        @app.projection(name="sums", **settings)
        class _(Projection):
            @on(Counted)
            def counted(_, event: Event[Counted], tx: Tx) -> None:
                if event.data.n in self.broken:
                    raise ValueError(f"{event.data.n} is too much")
                tx.after_commit(lambda: self.applied.append(event.data.n))

    def append(self, *numbers: int) -> int:
        return self.app.journal.append("a", [Counted(n) for n in numbers]).position

    def wait_until_faulted(self) -> None:
        wait_until(lambda: any(s.is_faulted for s in self.app.status()), WAIT_SECONDS, "the fault")

    def wait_until_applied(self, *numbers: int) -> None:
        wait_until(lambda: sorted(self.applied) == [*numbers], WAIT_SECONDS, "the events")


@pytest.fixture
def app(quick_url: str) -> Iterator[App]:
    with closing(App(quick_url)) as app:
        set_limits(app, recheck_seconds=0.05, fault_check_seconds=0.05)
        yield app


@pytest.fixture(params=KINDS)
def sums(app: App, request: pytest.FixtureRequest) -> Sums:
    return Sums(app, **{"policy": Policy(), **KINDS[request.param]})


def test_running_workers_go_on_after_a_retry(app: App, sums: Sums) -> None:
    sums.append(1, 2, 3)
    with app.running() as running:
        sums.wait_until_faulted()
        wait_until(lambda: "sums" in running.faulted, WAIT_SECONDS, "the fault here")
        assert app.retry("sums", by="ann")  # In vain: it fails again.
        wait_until(lambda: not any(s.is_faulted for s in app.status()), WAIT_SECONDS, "a retry")
        sums.wait_until_faulted()
        sums.broken = set()
        assert app.retry("sums", by="ann", note="fixed")
        sums.wait_until_applied(1, 2, 3)
        wait_until(lambda: running.faulted == {}, WAIT_SECONDS, "no fault")
        assert not app.retry("sums", by="ann")
    assert [row.action for row in app.audit("sums")] == ["retry", "retry"]
    assert {s.last_error for s in app.status()} == {None}


@pytest.mark.parametrize("settings", [KINDS["log"], KINDS["shards"]], ids=["log", "shards"])
def test_running_workers_go_on_after_queue_add_and_the_item_has_the_error(
    app: App, settings: dict[str, Any]
) -> None:
    sums = Sums(app, **settings)
    sums.append(1, 2, 3)
    with app.running():
        sums.wait_until_faulted()
        item = app.queue.add("sums", 2, by="ann")
        assert (item.status, item.attempts, item.error_type) == ("dead", 1, "ValueError")
        assert item.error_message == "2 is too much"
        assert "is too much" in (item.error_stacktrace or "")
        assert [attempt.error_type for attempt in item.history] == ["ValueError"]
        assert item.first_failed_at == item.last_failed_at is not None
        app.wait_for("sums", 3)
        assert not any(s.is_faulted for s in app.status())
        sums.broken = set()
        app.queue.requeue(QueueSelection(ids=(item.id,)), by="ann")
        sums.wait_until_applied(1, 2, 3)


@pytest.mark.parametrize("way", ["resolve", "resume"])
def test_running_workers_go_on_after_other_changes(app: App, way: str) -> None:
    decision: Fatal | Park = Park()
    sums = Sums(app, policy=Policy(on_error=lambda _: decision))
    sums.append(1, 2, 3)
    with app.running():
        app.wait_for("sums", 3)
        item, _ = app.queue.list()
        decision, only = Fatal(), QueueSelection(ids=(item.id,))
        app.queue.requeue(only, by="ann")
        sums.wait_until_faulted()
        sums.broken = set()
        if way == "resolve":
            app.queue.resolve(only, by="ann")
        else:
            app.pause("sums", by="ann")
            app.resume("sums", by="ann")
        sums.wait_until_applied(*((1, 2, 3) if way == "resume" else (1, 3)))


def test_a_fault_of_one_process_is_not_passed_to_and_fro(app: App, quick_url: str) -> None:
    tries: list[int] = []
    with closing(App(quick_url)) as other:
        for one in (app, other):
            set_limits(one, fault_check_seconds=0.02, standby_seconds=0.02)

            @one.projection(name="sums")
            class _(Projection):
                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    tries.append(event.data.n)
                    raise ValueError("no")

        app.journal.append("a", [Counted(1)])
        with app.running() as first, other.running() as second:
            wait_until(lambda: bool(first.faulted and second.faulted), WAIT_SECONDS, "two faults")
            assert len(tries) == 2
            # Both look again and again, and see nothing to do.
            app.journal.append("b", [Counted(2)])
            with pytest.raises(ProjectionFaulted):
                other.wait_for("sums", 2, timeout_seconds=0.5)
            assert len(tries) == 2


def test_a_reset_is_no_lost_lease(app: App) -> None:
    heard: list[Signal] = []
    app.listen(heard.append)
    sums = Sums(app)
    sums.broken = set()
    sums.append(1, 2)
    with app.running():
        sums.wait_until_applied(1, 2)
        app.reset("sums")
        wait_until(
            lambda: sum(isinstance(s, Started) for s in heard) == 2, WAIT_SECONDS, "a new start"
        )
        sums.wait_until_applied(1, 1, 2, 2)
    assert [s for s in heard if isinstance(s, LeaseLost)] == []
    assert len([s for s in heard if isinstance(s, BegunAgain)]) == 1


@pytest.mark.parametrize("quick_url", ["emptied_postgres_url"], indirect=True)
def test_what_only_a_reset_helps(app: App) -> None:
    statement = "COMMIT"  # SQLite refuses it.

    @app.projection
    class Ending(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            tx.execute(statement)

    app.journal.append("a", [Counted(1)])
    with app.running() as running:
        wait_until(lambda: bool(running.faulted), WAIT_SECONDS, "the fault")
        with pytest.raises(ProjectionFaulted, match="holdfast reset ending"):
            app.retry("ending", by="ann")
        statement = "SELECT 1"
        app.reset("ending")
        app.wait_for("ending", 1)
