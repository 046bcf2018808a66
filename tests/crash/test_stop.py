"""SIGTERM and SIGINT at any moment: what was begun is committed or undone, the lease is free."""

import random
import signal
import time
from pathlib import Path

import pytest

from holdfast.runtime.limits import LIMITS
from tests.contracts.samples import fetch
from tests.support.postgres import wait_until
from tests.world.app import Moved, build_app, reached
from tests.world.appender import Appender
from tests.world.checks import check_all
from tests.world.process import WorkerProcess
from tests.world.progress import await_arrival, await_progress, read_progress
from tests.world.wanted import Wanted

BACKLOG_EVENTS = 150


def test_worker_stopped_at_random_moments(store_url: str) -> None:
    """One worker after the other, each asked to stop in the middle of the work."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    slowest = 0.0
    with build_app(store_url) as app:
        app.migrate()
        with Appender(
            app, seed=seed, may_append=lambda: read_progress(store_url).backlog < BACKLOG_EVENTS
        ) as appender:
            for turn in range(6):
                with WorkerProcess(Wanted(store_url, slow_seconds=0.01, batch_events=7)) as worker:
                    await_progress(store_url)
                    time.sleep(chance.uniform(0, 0.1))  # Any moment may be the wrong one.
                    asked_at = time.monotonic()
                    worker.send(signal.SIGINT if turn % 2 else signal.SIGTERM)
                    assert worker.wait() == 0, worker
                    slowest = max(slowest, time.monotonic() - asked_at)
                check_all(store_url)
                assert {status.state for status in app.status()} == {"stopped"}
                assert {status.leader for status in app.status()} == {None}
        app.catch_up(timeout_seconds=60)
        checked = check_all(store_url, complete=True)
        journal = [event.id for event in app.journal.read_raw()]
    print(f"the slowest stop took {slowest:.2f} s; {checked}")
    assert sorted(journal) == sorted(appender.acknowledged)


def test_worker_stopped_while_it_starts(store_url: str) -> None:
    """Wherever the signal finds it, it ends, and the next worker does the work."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with build_app(store_url) as app:
        app.journal.append("account-1", [Moved(1)] * 10)
        for _ in range(6):
            with WorkerProcess(Wanted(store_url)) as worker:
                worker.wait_until_said("Loaded")
                time.sleep(chance.uniform(0, 0.1))
                worker.send(signal.SIGTERM)
                assert worker.wait() in (0, -signal.SIGTERM), worker
        check_all(store_url)
        app.catch_up(timeout_seconds=60)
        check_all(store_url, complete=True)


def test_a_handler_that_hangs_does_not_prevent_the_stop(store_url: str, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with build_app(store_url) as app:
        app.migrate()
        app.journal.append("account-1", [Moved(1), Moved(2, hold=str(hold)), Moved(3)])
        with WorkerProcess(Wanted(store_url), "--stop-seconds", "0.5") as worker:
            wait_until(reached(hold, worker.pid).exists, 30, "the handler to hang")
            assert worker.stop() == 1, worker
        # On SQLite it keeps the other projection waiting too, for there is one writer.
        (told,) = [line for line in worker.lines if "did not stop in 0.5 s" in line]
        assert "ledger" in told
        if store_url.startswith("postgresql"):  # On SQLite the handler holds the file.
            sql = "SELECT state FROM holdfast_checkpoint WHERE projection = 'ledger'"
            assert fetch(app, sql) == [("stopped",)], "it counts as a death"
        check_all(store_url)
        hold.unlink()
        with WorkerProcess(Wanted(store_url)) as next_one:
            await_arrival(store_url)
            assert next_one.stop() == 0, next_one
    check_all(store_url, complete=True)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_handler_that_hangs_at_every_stop_is_not_to_blame(
    store_url: str, tmp_path: Path, signals: int
) -> None:
    """Whether the time to stop runs out, or somebody is too impatient to wait for it."""
    hold = tmp_path / "hold"
    hold.touch()
    with build_app(store_url) as app:
        app.migrate()
        app.journal.append("account-1", [Moved(1), Moved(2, hold=str(hold)), Moved(3)])
        for _ in range(LIMITS.unclean_ends + LIMITS.marked_deaths):
            seconds = "0.1" if signals == 1 else "600"
            with WorkerProcess(Wanted(store_url), "--stop-seconds", seconds) as worker:
                wait_until(reached(hold, worker.pid).exists, 30, "the handler to hang")
                worker.send(signal.SIGTERM)
                if signals == 2:
                    wait_until(lambda w=worker: any("stopping" in x for x in w.lines), 30, "it")  # type: ignore[misc]
                    worker.send(signal.SIGTERM)
                assert worker.wait() == (1 if signals == 1 else 128 + signal.SIGTERM), worker
        hold.unlink()
        app.catch_up(timeout_seconds=60)
    check_all(store_url, complete=True)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    store_url: str, tmp_path: Path, first: signal.Signals
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with build_app(store_url) as app:
        app.migrate()
        app.journal.append("account-1", [Moved(1), Moved(2, hold=str(hold)), Moved(3)])
        with WorkerProcess(Wanted(store_url), "--stop-seconds", "600") as worker:
            wait_until(reached(hold, worker.pid).exists, 30, "the handler to hang")
            worker.send(first)
            wait_until(lambda: any("stopping" in line for line in worker.lines), 30, "the stop")
            worker.send(signal.SIGTERM)
            assert worker.wait() == 128 + signal.SIGTERM, worker
        hold.unlink()
        app.catch_up(timeout_seconds=60)
    check_all(store_url, complete=True)
