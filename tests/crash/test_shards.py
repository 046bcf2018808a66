"""Shards over several processes: spread evenly, taken over, and changed in number."""

import random
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from holdfast import App
from tests.support.postgres import wait_until
from tests.world.app import Moved, build_app
from tests.world.appender import Appender
from tests.world.checks import check_all
from tests.world.process import ChildProcess, WorkerProcess
from tests.world.progress import await_arrival, await_progress, read_progress
from tests.world.wanted import Wanted

SHARDS = 4
BACKLOG_EVENTS = 150
PROJECTIONS = ("ledger", "totals")


def spread(app: App) -> dict[str, list[int]]:
    """How many shards of each projection each process leads, the fewest first."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in PROJECTIONS}
    for status in app.status():
        if status.projection in counts and status.leader is not None:
            counts[status.projection][status.leader] += 1
    return {name: sorted(count.values()) for name, count in counts.items()}


def await_spread(app: App, expected: list[int], *workers: ChildProcess) -> None:
    wanted = dict.fromkeys(PROJECTIONS, expected)
    wait_until(lambda: spread(app) == wanted, 60, f"{expected} of {spread(app)}; {workers}")


def test_processes_share_shards_evenly_and_take_over(store_url: str) -> None:
    with build_app(store_url, shards=SHARDS) as app, ExitStack() as started:
        app.migrate()
        app.journal.append("account-1", [Moved(1)])

        def start() -> WorkerProcess:
            return started.enter_context(WorkerProcess(Wanted(store_url, shards=SHARDS)))

        first = start()
        await_spread(app, [4], first)
        second = start()
        await_spread(app, [2, 2], first, second)
        third = start()
        await_spread(app, [1, 1, 2], first, second, third)
        second.kill()
        await_spread(app, [2, 2], first, third)
        assert third.stop() == 0, third
        await_spread(app, [4], first)
        for number in range(20):
            app.journal.append(f"account-{number}", [Moved(number)])
        await_arrival(store_url)
        assert first.stop() == 0, first
        check_all(store_url, complete=True)


def test_number_of_shards_changed_while_everybody_is_killed(store_url: str) -> None:
    change_shards(store_url, changes=6)


@pytest.mark.soak
def test_number_of_shards_changed_while_everybody_is_killed_for_long(store_url: str) -> None:
    change_shards(store_url, changes=60)


def change_shards(url: str, *, changes: int) -> None:
    """Two workers; each change is begun by a command that may be killed, and so may a worker."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    wanted = Wanted(url, batch_events=7, shards=SHARDS, slow_seconds=0.005)

    def worker() -> WorkerProcess:
        return WorkerProcess(wanted)

    with build_app(url, shards=SHARDS) as app, ExitStack() as started:
        app.migrate()
        workers = [started.enter_context(worker()) for _ in range(2)]
        with Appender(
            app, seed=seed, may_append=lambda: read_progress(url).backlog < BACKLOG_EVENTS
        ) as appender:
            for _ in range(changes):
                await_progress(url)
                to = chance.randint(1, 6)
                commands = [
                    started.enter_context(
                        WorkerProcess(
                            wanted,
                            *("tests.world.worker:app", name, "--to", str(to), "--by", "test"),
                            command=("holdfast", "reshard"),
                        )
                    )
                    for name in PROJECTIONS
                ]
                for command in commands:
                    command.wait_until_said("Loaded")
                time.sleep(chance.uniform(0, 0.3))  # Any moment may be the wrong one.
                for command in commands:
                    if chance.random() < 0.5:
                        command.kill()
                if chance.random() < 0.5:
                    victim = workers.pop(0)
                    victim.kill()
                    workers.append(started.enter_context(worker()))
                assert {command.wait(60) for command in commands} <= {0, -9}, commands
                check_all(url)
        await_arrival(url)
        for name in PROJECTIONS:
            app.reshard(name, shards=2, by="test", timeout_seconds=60)
        assert [worker.stop() for worker in workers] == [0, 0], workers
        app.catch_up()
        check_all(url, complete=True)
        assert len(app.status()) == 2 + 2 + 1
        assert sorted(e.id for e in app.journal.read_raw()) == sorted(appender.acknowledged)
