"""kill -9 while events are parked, drained, requeued and resolved: nothing is lost or stranded."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count

import pytest

from holdfast import App, QueueSelection
from tests.support.postgres import PostgresServer, wait_until
from tests.world.app import LANE_KINDS, Moved, Name, build_app
from tests.world.checks import Found, check_one
from tests.world.failing_history import FailingHistory
from tests.world.gate import slow_lanes
from tests.world.process import OPERATOR, RUN, WorkerProcess
from tests.world.spoilt import PARKS, Spoilt
from tests.world.wanted import Wanted

MORE = 6
"""Maximum of kills, in multiples, until everything has happened at least once."""
STREAMS = 4


@pytest.fixture(params=LANE_KINDS)
def kind(request: pytest.FixtureRequest) -> Name:
    kind: Name = request.param
    return kind


def test_killed_while_parking_and_draining(lanes: Wanted, kind: Name, spoilt: Spoilt) -> None:
    kill_all_the_time(lanes, kind, spoilt, kills=8)


@pytest.mark.soak
def test_killed_while_parking_and_draining_for_long(
    lanes: Wanted, kind: Name, spoilt: Spoilt
) -> None:
    kill_all_the_time(lanes, kind, spoilt, kills=300)


def kill_all_the_time(lanes: Wanted, kind: Name, spoilt: Spoilt, *, kills: int) -> None:
    """A worker and an operator. Who is killed is replaced, while events go on to fail."""
    url, lanes = lanes.url, replace(lanes, slow_seconds=0.003)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    said: list[str] = []
    with build_app(url, kind, policy=PARKS) as app, ExitStack() as started:
        app.migrate()
        if url.startswith("postgresql"):
            slow_lanes(url)

        def backlog() -> int:
            found = check_one(url, kind)
            return found.head - found.position

        history = FailingHistory(app, spoilt, chance, backlog=backlog, streams=STREAMS)
        commands = (RUN, OPERATOR)
        running = [started.enter_context(WorkerProcess(lanes, command=each)) for each in commands]
        running[0].wait_until_said("Committed")
        done = 0
        while done < kills or not all(count_words(said).values()):
            assert done < MORE * kills, f"something has never happened: {count_words(said)}"
            done += 1
            history.go_on()
            victim = 0 if chance.random() < 0.7 else 1
            running[victim].wait_until_said("Committed" if victim == 0 else "Ready")
            history.go_on()
            time.sleep(chance.uniform(0, 0.1))  # Any moment may be the wrong one.
            running[victim].kill()
            said += running[victim].lines
            check_one(url, kind)
            running[victim] = started.enter_context(WorkerProcess(lanes, command=commands[victim]))
        worker, operator = running
        operator.kill()
        spoilt.clear()
        found = finish(app, url, kind, worker)
        worker.wait_until_said("Started")  # Before that, a signal ends it like any process.
        assert worker.stop() == 0, worker
    counted = count_words([*said, *worker.lines, *operator.lines])
    print(f"{done} kills; {counted}; {len(found.applied)} of {len(found.lanes)} applied")
    assert len(found.applied) + len(found.statuses) == len(found.lanes)


def count_words(lines: Sequence[str]) -> dict[str, int]:
    """How often each of the things has happened that a kill may come between."""
    words = ("Committed", "Parked", "Drained", "Changed requeue", "Changed resolve")
    return {word: sum(line.startswith(word) for line in lines) for word in words}


def finish(app: App, url: str, kind: Name, worker: WorkerProcess) -> Found:
    """Nothing fails any more: waits until the worker has applied all that waits."""

    def is_done() -> bool:
        assert worker.is_running, worker
        app.queue.requeue(QueueSelection(), by="the end", limit=10_000)
        found = check_one(url, kind)
        return found.position == found.head and not found.due_at

    wait_until(is_done, 60, f"all to be applied by {worker!r}")
    return check_one(url, kind, complete=True)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.mark.parametrize(
    ("kind", "end"),
    [("ledger", PostgresServer.stop), ("totals", PostgresServer.kill)],
    indirect=["kind"],
)
def test_database_away_parks_nothing(
    server: PostgresServer, kind: Name, spoilt: Spoilt, end: Callable[[PostgresServer], None]
) -> None:
    database_away(server, kind, spoilt, end, away_seconds=0.0)


@pytest.mark.soak
@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_database_away_for_long_parks_nothing(
    server: PostgresServer, kind: Name, spoilt: Spoilt, end: Callable[[PostgresServer], None]
) -> None:
    database_away(server, kind, spoilt, end, away_seconds=30.0)


def database_away(
    server: PostgresServer,
    kind: Name,
    spoilt: Spoilt,
    end: Callable[[PostgresServer], None],
    *,
    away_seconds: float,
) -> None:
    """The policy would park what fails, but no event has failed."""
    url = server.create_database()
    numbers = count(1)
    with build_app(url, kind, policy=PARKS) as app:

        def append(events: int) -> None:
            for n in range(events):
                app.journal.append(f"lane-{n % STREAMS}", [Moved(next(numbers), "xyz"[n % 3])])

        append(40)
        with WorkerProcess(spoilt.wanted(url, kind)) as worker:
            for outage in range(1, 3):
                worker.wait_until_said("Committed", times=outage)
                append(40)
                failures = worker.times_said("PollFailed")
                end(server)
                worker.wait_until_said("PollFailed", times=failures + 1)
                time.sleep(away_seconds)  # The database is away for a while.
                server.restart()
                worker.wait_until_said("PollRecovered", times=outage)
            wait_until(lambda: is_at_head(url, kind), 60, f"arrival of {worker!r}")
            assert worker.stop() == 0, worker
        found = check_one(url, kind, complete=True)
        assert len(found.applied) == len(found.lanes) == 120
        assert not found.statuses
        assert not worker.said("Failed"), worker


def is_at_head(url: str, kind: Name) -> bool:
    found = check_one(url, kind)
    return found.position == found.head
