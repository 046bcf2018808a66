"""Leases: lost ones are noticed and taken again, and of many who want one, one has it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from holdfast import App
from holdfast.runtime.signals import LeaseLost, Signal, Started
from tests.support.postgres import wait_until
from tests.world.app import PROJECTIONS, Moved, build_app
from tests.world.checks import check_all
from tests.world.gate import lose_leases
from tests.world.progress import await_arrival


@dataclass
class Heard:
    """The signals of an app, in order."""

    signals: list[Signal] = field(default_factory=list)

    def epochs(self, projection: str) -> list[int]:
        """The epochs under which a projection was started."""
        return [
            s.epoch for s in self.signals if isinstance(s, Started) and s.projection == projection
        ]

    def lost(self) -> int:
        return sum(isinstance(signal, LeaseLost) for signal in self.signals)


OpenApp = Callable[[str], tuple[App, Heard]]


@pytest.fixture
def open_app() -> Iterator[OpenApp]:
    with ExitStack() as stack:

        def open_one(url: str) -> tuple[App, Heard]:
            app, heard = stack.enter_context(build_app(url, slow_seconds=0.002)), Heard()
            app.listen(heard.signals.append)
            return app, heard

        yield open_one


def test_lease_connection_cut_while_the_runner_works(postgres_url: str, open_app: OpenApp) -> None:
    app, heard = open_app(postgres_url)
    with app.running():
        for turn in range(1, 6):
            append(app, 60)
            await_started(heard, list(range(1, turn + 1)))
            assert lose_leases(postgres_url) == 1
        await_started(heard, [1, 2, 3, 4, 5, 6])
        await_arrival(postgres_url)
    assert heard.lost() == 5 * len(PROJECTIONS)
    check_all(postgres_url, complete=True)


def test_of_two_apps_in_a_process_one_leads(store_url: str, open_app: OpenApp) -> None:
    (one, heard_by_one), (other, heard_by_other) = open_app(store_url), open_app(store_url)
    with ExitStack() as stack:
        stack.enter_context(one.running())
        await_started(heard_by_one, [1])
        with other.running():
            append(other, 50)
            await_arrival(store_url)
            assert heard_by_other.signals == []

            stack.close()
            await_started(heard_by_other, [2])
            append(one, 50)
            await_arrival(store_url)
    assert heard_by_one.lost() == heard_by_other.lost() == 0
    check_all(store_url, complete=True)


def test_an_app_that_runs_twice_leads_once(store_url: str, open_app: OpenApp) -> None:
    app, heard = open_app(store_url)
    with app.running():
        await_started(heard, [1])
        append(app, 50)
        with app.running():
            app.catch_up(timeout_seconds=60)
            append(app, 50)
            await_arrival(store_url)
    check_all(store_url, complete=True)
    assert heard.lost() == 0
    await_started(heard, [1])


def test_of_many_standbys_one_takes_over(store_url: str, open_app: OpenApp) -> None:
    """Deposed again and again while events come in: one start an epoch, and no two at a time."""
    opened = [open_app(store_url) for _ in range(6)]
    app = opened[0][0]
    started: list[Started] = []
    for one, _ in opened:
        one.listen(lambda signal: started.append(signal) if isinstance(signal, Started) else None)
    with ExitStack() as stack:
        for one, _ in opened:
            stack.enter_context(one.running())
        for turn in range(1, 11):
            append(app, 10)
            await_starts(started, at_least=turn)
            for name in PROJECTIONS:
                app.depose(name)
        append(app, 10)
        await_arrival(store_url)
        assert {status.state for status in app.status()} == {"running"}
    checked = check_all(store_url, complete=True)
    print(f"{len(started)} starts, {checked}")
    for name in PROJECTIONS:
        epochs = [signal.epoch for signal in started if signal.projection == name]
        assert sorted(set(epochs)) == sorted(epochs)


def append(app: App, count: int) -> None:
    for n in range(count // 5):
        app.journal.append(f"account-{n % 3}", [Moved(n)] * 5)


def await_started(heard: Heard, epochs: list[int]) -> None:
    """Returns when each projection was started under just these epochs."""
    wait_until(
        lambda: all(heard.epochs(name) == epochs for name in PROJECTIONS),
        30,
        f"epochs {epochs}, so far: {[heard.epochs(name) for name in PROJECTIONS]}",
    )


def await_starts(started: list[Started], *, at_least: int) -> None:
    """Returns when each projection was started so often, by whomever."""
    wait_until(
        lambda: all(sum(s.projection == name for s in started) >= at_least for name in PROJECTIONS),
        30,
        f"{at_least} starts of each",
    )
