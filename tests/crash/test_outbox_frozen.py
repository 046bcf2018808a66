"""A worker that is frozen past its lease loses its lane, and changes nothing when it wakes up."""

import fcntl
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.checks import check_one
from tests.world.process import WorkerProcess
from tests.world.progress import await_settled
from tests.world.spoilt import PARKS, Spoilt
from tests.world.tables import snapshot
from tests.world.wanted import Wanted

FREEZES = 100


@pytest.mark.parametrize("outbox_kind", ["ledger"], indirect=True)
@pytest.mark.parametrize("slow", [1, 3])
def test_woken_worker_changes_nothing(
    store_url: str,
    outbox_kind: Name,
    spoilt: Spoilt,
    outbox: Wanted,
    slow: int,
) -> None:
    """Frozen in handlers that have not begun to write; so nobody else has to wait for them."""
    outbox = one_by_one(outbox)
    with build_app(store_url, outbox_kind, policy=PARKS, concurrency=4) as app:
        for number in range(1, 9):
            app.journal.append(f"lane-{number % 4}", [Moved(number)])
        for number in range(1, slow + 1):
            spoilt[number] = "hold first"
        with WorkerProcess(outbox) as frozen:
            for number in range(1, slow + 1):
                frozen.wait_until_said(f"Holding {number}")
            freeze_outside(frozen, store_url)
            spoilt.clear()
            with WorkerProcess(outbox) as taker:
                await_settled(store_url, outbox_kind, lambda: taker)
                assert taker.said("Failed"), "it did not know that another one had tried"
                before = check_one(store_url, outbox_kind, complete=True)
                assert len(before.applied) == 8
                frozen.wake()
                for number in range(1, slow + 1):
                    frozen.wait_until_said(f"Released {number}")
                app.journal.append("lane-1", [Moved(9), Moved(10)])
                await_settled(store_url, outbox_kind, lambda: (frozen, taker))
                assert frozen.stop() == 0, frozen  # When it has finished what it had begun.
                assert taker.stop() == 0, taker
        after = check_one(store_url, outbox_kind, complete=True)
    assert sorted(after.applied) == list(range(1, 11))


@pytest.mark.parametrize("outbox_kind", ["ledger"], indirect=True)
def test_frozen_worker_that_wakes_in_time_goes_on(
    store_url: str, spoilt: Spoilt, outbox_kind: Name, outbox: Wanted
) -> None:
    """Nobody has taken its lanes, so they are still its own, past the lease or not."""
    outbox = one_by_one(outbox)
    append_to = [f"lane-{number}" for number in range(4)]
    with build_app(store_url, outbox_kind, policy=PARKS, concurrency=4) as app:
        for number, stream in enumerate(append_to, 1):
            app.journal.append(stream, [Moved(number)])
        spoilt[1] = "hold first"
        with WorkerProcess(outbox) as frozen:
            frozen.wait_until_said("Holding 1")
            freeze_outside(frozen, store_url)
            assert 1 in check_one(store_url, outbox_kind).with_status("processing")
            spoilt.clear()
            frozen.wake()
            await_settled(store_url, outbox_kind, lambda: frozen)
            assert frozen.stop() == 0, frozen
    assert len(check_one(store_url, outbox_kind, complete=True).applied) == 4


def one_by_one(outbox: Wanted) -> Wanted:
    """No lane waits for another one in a transaction that they have in common."""
    return replace(outbox, is_patient=True, limits=replace(outbox.limits, bundle_lanes=1))


def freeze_outside(worker: WorkerProcess, url: str) -> None:
    """Freezes a worker while it has no open transaction: others would wait for its end.

    On SQLite that would be all others, also if it waits for its turn; on PostgreSQL those who need
    the same lane.
    """
    for _ in range(FREEZES):
        wait_until(lambda: is_outside(url), 30, f"the end of a transaction of {worker!r}")
        worker.freeze()
        if is_outside(url):
            return
        worker.wake()
    raise AssertionError(f"always in a transaction: {worker!r}")


def is_outside(url: str) -> bool:
    if url.startswith("postgresql"):
        return not snapshot(
            url,
            lambda query: query(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            ),
        )
    path = url.removeprefix("sqlite:///")
    with Path(f"{path}-turn").open("rb") as turn, closing(sqlite3.connect(path, timeout=0)) as raw:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raw.execute("BEGIN IMMEDIATE")
        except (BlockingIOError, sqlite3.OperationalError):
            return False
    return True
