"""kill -9 at random moments: nothing is lost, nothing is applied twice, and order holds."""

import random
import time
from contextlib import ExitStack
from typing import Self

import psycopg
import pytest

from holdfast import App
from tests.support.postgres import wait_until
from tests.world.app import PROJECTIONS, Moved, build_app
from tests.world.appender import Appender
from tests.world.checks import check_all
from tests.world.gate import at_commit, lose_leases, waiting_for_lock
from tests.world.process import WorkerProcess
from tests.world.progress import await_arrival, await_progress, read_progress
from tests.world.wanted import Wanted

BACKLOG_EVENTS = 150
GATE = 4711


def test_workers_killed_at_random_moments(store_url: str) -> None:
    kill_workers(store_url, kills=15)


def test_workers_that_do_not_wait_for_statements_killed_at_random_moments(
    postgres_url: str,
) -> None:
    kill_workers(postgres_url, kills=15, writes=True)


def test_workers_of_shards_killed_at_random_moments(store_url: str) -> None:
    kill_workers(store_url, kills=15, shards=3)


@pytest.mark.soak
def test_workers_of_shards_killed_at_random_moments_for_long(store_url: str) -> None:
    kill_workers(store_url, kills=150, shards=3)


@pytest.mark.soak
@pytest.mark.parametrize("writes", [False, True])
def test_workers_killed_at_random_moments_for_long(store_url: str, writes: bool) -> None:
    kill_workers(store_url, kills=150, writes=writes)


def kill_workers(url: str, *, kills: int, writes: bool = False, shards: int = 1) -> None:
    """Two workers at a time; a killed one is replaced, while events go on being appended."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    inside = 0
    wanted = Wanted(url, slow_seconds=0.01, batch_events=7, writes=writes, shards=shards)
    with build_app(url, shards=shards) as app, TwoWorkers(wanted) as two:
        app.migrate()
        if url.startswith("postgresql"):
            at_commit(url, "pg_sleep(0.01)")
        with Appender(
            app, seed=seed, may_append=lambda: read_progress(url).backlog < BACKLOG_EVENTS
        ) as appender:
            for _ in range(kills):
                await_progress(url)
                time.sleep(chance.uniform(0, 0.15))  # Any moment may be the wrong one.
                leader = two.leader(app) if chance.random() < 0.8 else None
                inside += two.replace(leader or chance.choice(two.workers))
                check_all(url)
        await_arrival(url)
        assert [worker.stop() for worker in two.workers] == [0, 0], two.workers
        checked = check_all(url, complete=True)
        journal = [event.id for event in app.journal.read_raw()]

    print(f"{kills} kills, {inside} of them inside the ledger's transaction; {checked}")
    assert sorted(journal) == sorted(appender.acknowledged)
    assert inside > 0 or shards > 1  # Where another shard has the last word, it does not show.


@pytest.mark.parametrize("outcome", ["committed", "rolled back"])
def test_worker_lost_while_its_commit_is_on_the_way(postgres_url: str, outcome: str) -> None:
    """It never learns how its commit ends; the next one waits for it, and goes by the table.

    Frozen first, and killed after the outcome: the server would end a dead client's commit.
    """
    with build_app(postgres_url) as app, psycopg.connect(postgres_url, autocommit=True) as gate:
        app.migrate()
        app.journal.append("account-1", [Moved(1)] * 5)
        gate.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        at_commit(postgres_url, f"pg_advisory_xact_lock_shared({GATE})")

        with WorkerProcess(Wanted(postgres_url)) as lost:
            wait_until(
                lambda: len(waiting_for_lock(gate)) == len(PROJECTIONS),
                30,
                f"all commits to wait: {lost!r}",
            )
            committing = waiting_for_lock(gate)
            lost.freeze()
            assert lose_leases(postgres_url) == 1
            with WorkerProcess(Wanted(postgres_url)) as successor:
                wait_until(
                    lambda: len(waiting_for_lock(gate)) == 2 * len(PROJECTIONS),
                    30,
                    f"it to take over: {successor!r}",
                )
                if outcome == "rolled back":
                    for pid in committing:
                        gate.execute("SELECT pg_terminate_backend(%s)", (pid,))
                gate.execute("SELECT pg_advisory_unlock(%s)", (GATE,))
                await_arrival(postgres_url)
                lost.kill()
                app.journal.append("account-1", [Moved(10)] * 3)
                await_arrival(postgres_url)
                assert successor.stop() == 0, successor
        check_all(postgres_url, complete=True)
        handled = sum(line.startswith("Handling") for line in successor.lines)
        assert handled == (3 if outcome == "committed" else 8)


class TwoWorkers:
    """Two workers, at any time."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._started = ExitStack()
        self.workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        self.workers = [self._start(), self._start()]
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def leader(self, app: App) -> WorkerProcess | None:
        """The one that runs the ledger, if anyone does just now."""
        leaders = {status.leader for status in app.status() if status.projection == "ledger"}
        pids = {int(leader.rpartition(":")[2]) for leader in leaders if leader}
        return next((worker for worker in self.workers if worker.pid in pids), None)

    def replace(self, victim: WorkerProcess) -> bool:
        """Kills one and starts another; returns whether it was killed inside a transaction."""
        victim.kill()
        self.workers.remove(victim)
        self.workers.append(self._start())
        ledger = [
            line for line in victim.lines if line.startswith(("Handling", "Committed ledger"))
        ]
        return bool(ledger) and ledger[-1].startswith("Handling")

    def _start(self) -> WorkerProcess:
        return self._started.enter_context(WorkerProcess(self._wanted))
