"""Two worker processes: one leads, and the other takes over when it dies, or is deposed.

A leader that is frozen keeps its lease, because nobody can tell a frozen process from a slow one.
An operator can: `depose` takes the projection from it, and the epoch keeps it harmless when it
wakes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from holdfast import App
from holdfast.runtime.limits import LIMITS
from tests.support.postgres import wait_until
from tests.world.app import PROJECTIONS, Moved, build_app, reached
from tests.world.checks import check_all
from tests.world.gate import at_commit, waiting_for_lock
from tests.world.process import WorkerProcess
from tests.world.progress import await_arrival
from tests.world.wanted import Wanted

Start = Callable[[], WorkerProcess]


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with build_app(store_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def postgres_app(postgres_url: str) -> Iterator[App]:
    with build_app(postgres_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def start(store_url: str) -> Iterator[Start]:
    """Starts workers, and ends them with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(WorkerProcess(Wanted(store_url)))


def test_standby_takes_over_from_a_killed_leader(app: App, store_url: str, start: Start) -> None:
    leader, standby = lead_and_stand_by(start)
    append(app, 20)
    await_arrival(store_url)

    killed_at = time.monotonic()
    leader.kill()
    await_leader(app, standby)
    print(f"taken over {time.monotonic() - killed_at:.2f} s after the kill")

    append(app, 20)
    await_arrival(store_url)
    assert standby.stop() == 0, standby
    check_all(store_url, complete=True)
    assert not leader.said("LeaseLost")


def test_standby_takes_over_from_a_leader_that_stops(
    app: App, store_url: str, start: Start
) -> None:
    leader, standby = lead_and_stand_by(start)
    append(app, 20)
    stopped_at = time.monotonic()
    assert leader.stop() == 0, leader
    await_leader(app, standby)
    print(f"taken over {time.monotonic() - stopped_at:.2f} s after SIGTERM")
    await_arrival(store_url)
    assert standby.stop() == 0, standby
    check_all(store_url, complete=True)


def test_frozen_leader_is_deposed_and_fenced(app: App, store_url: str, start: Start) -> None:
    frozen, standby = lead_and_stand_by(start)
    append(app, 20)
    await_arrival(store_url)
    frozen.freeze()
    append(app, 5)
    time.sleep(3 * LIMITS.standby_seconds)  # That nothing happens can't be awaited.
    assert leaders(app) == dict.fromkeys(PROJECTIONS, frozen.pid)
    assert check_all(store_url).positions == dict.fromkeys(PROJECTIONS, 20)

    depose(app)
    await_leader(app, standby)
    await_arrival(store_url)
    stays_fenced(app, store_url, frozen=frozen, leader=standby)
    is_healthy_standby(app, store_url, woken=frozen, leader=standby)


def test_leader_frozen_inside_a_transaction_is_deposed(
    postgres_app: App, postgres_url: str, tmp_path: Path
) -> None:
    app, hold = postgres_app, tmp_path / "hold"
    hold.touch()
    with WorkerProcess(Wanted(postgres_url)) as frozen:
        lead(frozen)
        append(app, 3)
        await_arrival(postgres_url)
        app.journal.append("account-0", [Moved(1), Moved(1, hold=str(hold)), Moved(1)])
        wait_until(reached(hold, frozen.pid).exists, 30, "the handler to be inside")
        frozen.freeze()
        hold.unlink()

        depose(app)
        with WorkerProcess(Wanted(postgres_url)) as standby:
            await_leader(app, standby)
            await_arrival(postgres_url)
            stays_fenced(app, postgres_url, frozen=frozen, leader=standby)
            is_healthy_standby(app, postgres_url, woken=frozen, leader=standby)


def test_leader_killed_while_its_statement_runs(
    postgres_app: App, postgres_url: str, tmp_path: Path
) -> None:
    """The server goes on with a dead client's statement, and its rows stay locked meanwhile."""
    app, long = postgres_app, tmp_path / "long"
    long.touch()
    with WorkerProcess(Wanted(postgres_url)) as killed:
        lead(killed)
        app.journal.append("account-0", [Moved(1), Moved(2, query=str(long)), Moved(3)])
        wait_until(lambda: sleeping(postgres_url) == 1, 30, "the statement to run")
        long.unlink()
        killed.kill()
    with WorkerProcess(Wanted(postgres_url)) as successor:
        await_leader(app, successor)
        await_arrival(postgres_url)
        assert successor.stop() == 0, successor
    check_all(postgres_url, complete=True)


def test_leader_frozen_while_its_commit_is_on_the_way_is_deposed(
    postgres_app: App, postgres_url: str
) -> None:
    """The server is inside the COMMIT and holds the checkpoint's row; the client hears nothing."""
    app = postgres_app
    with (
        WorkerProcess(Wanted(postgres_url)) as frozen,
        psycopg.connect(postgres_url, autocommit=True) as gate,
    ):
        lead(frozen)
        gate.execute("SELECT pg_advisory_lock(4711)")
        at_commit(postgres_url, "pg_advisory_xact_lock_shared(4711)")
        append(app, 5)
        wait_until(
            lambda: len(waiting_for_lock(gate)) == len(PROJECTIONS),
            30,
            f"all to commit: {frozen!r}",
        )
        frozen.freeze()
        depose(app)
        gate.execute("SELECT pg_advisory_unlock(4711)")
        with WorkerProcess(Wanted(postgres_url)) as standby:
            await_leader(app, standby)
            await_arrival(postgres_url)
            stays_fenced(app, postgres_url, frozen=frozen, leader=standby)
            is_healthy_standby(app, postgres_url, woken=frozen, leader=standby)


def sleeping(url: str) -> int:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
        return len(rows.fetchall())


def lead_and_stand_by(start: Start) -> tuple[WorkerProcess, WorkerProcess]:
    """Two workers, the first of which leads both projections."""
    leader = start()
    lead(leader)
    standby = start()
    standby.wait_until_said("Loaded")
    return leader, standby


def lead(worker: WorkerProcess) -> None:
    for name in PROJECTIONS:
        worker.wait_until_said(f"Started {name}")


def append(app: App, count: int) -> None:
    for n in range(count):
        app.journal.append(f"account-{n % 3}", [Moved(n)])


def leaders(app: App) -> dict[str, int]:
    """The process that leads each projection, as far as there is one."""
    return {
        status.projection: int(status.leader.rpartition(":")[2])
        for status in app.status()
        if status.leader
    }


def await_leader(app: App, worker: WorkerProcess) -> None:
    wanted = dict.fromkeys(PROJECTIONS, worker.pid)
    wait_until(lambda: leaders(app) == wanted, 30, f"it to lead: {worker!r}")


def depose(app: App) -> None:
    """On PostgreSQL the lease of the second is gone with the first's, and may be taken already."""
    assert app.depose(PROJECTIONS[0]) == 1
    for name in PROJECTIONS[1:]:
        app.depose(name)


def stays_fenced(app: App, url: str, *, frozen: WorkerProcess, leader: WorkerProcess) -> None:
    """Wakes a deposed leader and sees it change nothing."""
    epochs = check_all(url, complete=True).epochs
    lines = len(frozen.lines)
    append(app, 4)
    frozen.wake()

    def noticed() -> bool:
        said = frozen.lines[lines:]
        return all(
            any(line.startswith((f"LeaseLost {name}", f"PollFailed {name}")) for line in said)
            for name in PROJECTIONS
        )

    wait_until(noticed, 30, f"it to notice: {frozen!r}")
    append(app, 4)
    await_arrival(url)
    assert leaders(app) == dict.fromkeys(PROJECTIONS, leader.pid)
    assert check_all(url, complete=True).epochs == epochs
    assert not any(line.startswith("Committed") for line in frozen.lines[lines:])


def is_healthy_standby(app: App, url: str, *, woken: WorkerProcess, leader: WorkerProcess) -> None:
    """Kills the leader and sees the woken one lead."""
    leader.kill()
    await_leader(app, woken)
    append(app, 4)
    await_arrival(url)
    assert woken.stop() == 0, woken
    check_all(url, complete=True)
