"""An event that kills its process: after two deaths it is found, and its policy is asked.

What kills from outside, at any moment, must not be held against the event that was being applied.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast import App, QueueItem, QueueSelection
from holdfast.runtime.limits import LIMITS
from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.checks import check_one
from tests.world.process import WorkerProcess
from tests.world.spoilt import PARKS, Spoilt
from tests.world.wanted import Wanted

KILLER = 10
EVENTS = 20
MAX_STARTS = 10
DEATHS = LIMITS.unclean_ends + LIMITS.marked_deaths
"""Two that say that something is wrong, and two that say what."""


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Name:
    kind: Name = request.param
    return kind


def of_kinds(*kinds: Name) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, indirect=True)


def append(app: App, *numbers: int) -> None:
    """Two lanes in turn, by stream and by row."""
    for n in numbers:
        app.journal.append(f"lane-{n % 2}", [Moved(n, "xy"[n % 2])])


def start_again_until(lanes: Wanted, done: Callable[[], bool]) -> int:
    """Starts a worker as often as it dies, until something holds; returns how often it died."""
    for deaths in range(MAX_STARTS):
        with WorkerProcess(lanes) as worker:
            wait_until(lambda w=worker: done() or not w.is_running, 60, f"a word from {worker!r}")  # type: ignore[misc]
            if done():
                if worker.is_running:
                    worker.stop()
                return deaths
    raise AssertionError(f"{MAX_STARTS} starts were not enough")


def killer(app: App) -> QueueItem | None:
    items = [item for item in app.queue.list() if item.position == KILLER]
    return items[0] if items else None


def is_at_head(url: str, kind: Name) -> bool:
    found = check_one(url, kind)
    return found.position == found.head


@pytest.mark.parametrize(
    ("kind", "death"),
    [("totals", "kill"), ("keyed", "exit"), ("ledger", "kill")],
    indirect=["kind"],
)
def test_killer_is_parked_and_the_rest_applied(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted, death: str
) -> None:
    spoilt[KILLER] = death
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, *range(1, EVENTS + 1))
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == DEATHS
        found = check_one(store_url, kind)
        behind = range(KILLER + 2, EVENTS + 1, 2)
        assert found.with_status("dead") == [KILLER]
        assert found.with_status("pending") == list(behind)
        assert sorted(found.applied) == sorted(set(range(1, EVENTS + 1)) - {KILLER} - set(behind))
        item = killer(app)
        assert item is not None
        assert item.error_type == "ProcessDied"

        spoilt.clear()
        app.queue.requeue(QueueSelection(ids=(item.id,)), by="an operator")
        assert start_again_until(lanes, lambda: not check_one(store_url, kind).due_at) == 0
        assert len(check_one(store_url, kind, complete=True).applied) == EVENTS


@of_kinds("ledger")
def test_killer_stops_a_projection_that_is_to_stop(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    spoilt[KILLER] = "kill"
    spoilt[0] = "fatal"

    def is_faulted() -> bool:
        return check_one(store_url, kind).state == "faulted"

    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, *range(1, EVENTS + 1))
        assert start_again_until(lanes, is_faulted) == DEATHS
        found = check_one(store_url, kind)
        assert found.position == KILLER - 1
        assert not found.statuses
        (status,) = app.status()
        assert status.last_error is not None
        assert status.last_error.type == "ProcessDied"
        assert status.last_error.position == KILLER

        # An operator has mended it: a fault is no reason to suspect the event again.
        spoilt.clear()
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        assert len(check_one(store_url, kind, complete=True).applied) == EVENTS


@of_kinds("keyed", "ledger")
def test_killer_that_waits_in_the_queue(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    spoilt[KILLER] = "park"
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, *range(1, EVENTS + 1))
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        waiting = killer(app)
        assert waiting is not None
        spoilt[KILLER] = "kill"
        app.queue.requeue(QueueSelection(ids=(waiting.id,)), by="an operator")
        append(app, EVENTS + 1)

        def is_dead_again() -> bool:
            item = killer(app)
            return item is not None and item.status == "dead"

        assert start_again_until(lanes, is_dead_again) == DEATHS
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        item = killer(app)
        assert item is not None
        assert item.error_type == "ProcessDied"
        assert [attempt.error_type for attempt in item.history] == ["Poisoned", "ProcessDied"]
        found = check_one(store_url, kind)
        assert EVENTS + 1 in found.applied
        assert found.outstanding == list(range(KILLER, EVENTS + 1, 2))

        spoilt.clear()
        app.queue.requeue(QueueSelection(ids=(item.id,)), by="an operator")
        assert start_again_until(lanes, lambda: not check_one(store_url, kind).due_at) == 0
        assert len(check_one(store_url, kind, complete=True).applied) == EVENTS + 1


@of_kinds("totals", "ledger")
def test_event_that_takes_all_memory(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    """Whether the process dies of it or not, the event is found and the others are applied."""
    lanes = replace(lanes, spare_bytes=300 * 2**20)
    spoilt[KILLER] = "memory"
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, *range(1, EVENTS + 1))
        deaths = start_again_until(lanes, lambda: is_at_head(store_url, kind))
        item = killer(app)
        assert item is not None
        print(f"{deaths} deaths, then {item.error_type}")
        assert item.status == "dead"
        assert item.error_type == ("ProcessDied" if deaths else "MemoryError")
        assert check_one(store_url, kind).outstanding == list(range(KILLER, EVENTS + 1, 2))


@of_kinds("ledger")
def test_killed_again_and_again_with_progress_between(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    """As long as something is committed between two deaths, nobody is suspected."""
    lanes = replace(lanes, slow_seconds=0.005)
    chance = random.Random()
    number = 0
    with build_app(store_url, kind, policy=PARKS) as app:
        for _ in range(8):
            append(app, *range(number + 1, number + 61))
            number += 60
            with WorkerProcess(lanes) as worker:
                worker.wait_until_said("Committed")
                time.sleep(chance.uniform(0, 0.1))  # Any moment may be the wrong one.
                worker.kill()
            found = check_one(store_url, kind)
            assert not found.statuses, found
            assert found.mark_position is None, found
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        found = check_one(store_url, kind, complete=True)
        assert len(found.applied) == number
        assert not found.statuses


@of_kinds("totals")
def test_killed_again_and_again_at_one_slow_event(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    """From inside nobody can tell a kill from a crash: the event is asked about, and comes back.

    It takes as many deaths as a crash does, all of them inside the same event.
    """
    spoilt[1] = "hold"
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, 1, 2, 3)
        for _ in range(DEATHS):
            with WorkerProcess(lanes) as worker:
                worker.wait_until_said("Suffering 1")
                assert not check_one(store_url, kind).statuses
                worker.kill()
        spoilt.clear()
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        (item,) = [item for item in app.queue.list() if item.status == "dead"]
        assert (item.position, item.error_type) == (1, "ProcessDied")
        app.queue.requeue(QueueSelection(ids=(item.id,)), by="an operator")
        assert start_again_until(lanes, lambda: not check_one(store_url, kind).due_at) == 0
        assert len(check_one(store_url, kind, complete=True).applied) == 3


@of_kinds("ledger")
def test_killed_while_idle_blames_nobody(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    """Two deaths of an idle process say nothing of the event that comes next."""
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, 1)
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        for _ in range(LIMITS.unclean_ends):
            with WorkerProcess(lanes) as worker:
                worker.wait_until_said("Started")
                worker.kill()
        spoilt[2] = "hold"
        append(app, 2)
        with WorkerProcess(lanes) as worker:
            worker.wait_until_said("Suffering 2")
            worker.kill()
        spoilt.clear()
        assert start_again_until(lanes, lambda: is_at_head(store_url, kind)) == 0
        found = check_one(store_url, kind)
        assert not found.statuses, found


@of_kinds("keyed")
def test_killer_is_found_though_a_lane_is_always_due(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    """An event in the queue that fails again and again, at once, takes nobody's mark away."""
    spoilt[1] = "park and again"
    spoilt[KILLER] = "kill"
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, *range(1, EVENTS + 1))
        assert start_again_until(lanes, lambda: killer(app) is not None) <= DEATHS + 1
        item = killer(app)
        assert item is not None
        assert item.error_type == "ProcessDied"


@of_kinds("totals")
def test_what_operators_do_in_a_crash_loop_is_no_death(
    store_url: str, kind: Name, spoilt: Spoilt, lanes: Wanted
) -> None:
    """An event that was tried alone twice, and died of once, is not to blame yet."""
    spoilt[1] = "kill"
    with build_app(store_url, kind, policy=PARKS) as app:
        append(app, 1, 2)
        for _ in range(LIMITS.unclean_ends):
            with WorkerProcess(lanes) as worker:
                worker.wait()
        spoilt[1] = "hold"
        with WorkerProcess(lanes) as worker:
            worker.wait_until_said("Singled")
            worker.wait_until_said("Suffering 1")
            app.pause(kind, by="an operator")
            app.resume(kind, by="an operator")
            spoilt[1] = "kill"
            worker.wait()
            worker.wait_until_said("Suffering 1 kill")
        spoilt[1] = "hold"
        with WorkerProcess(lanes) as worker:
            worker.wait_until_said("Suffering 1")
            assert not check_one(store_url, kind).statuses
            worker.kill()
