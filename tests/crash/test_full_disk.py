"""A full disk on SQLite: nothing is half written, and work goes on when there is room again.

The disk is full for one process only: the size of files it may write is limited, and the limit
lifted again, from outside.
"""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import App
from tests.world.app import PROJECTIONS, Moved, build_app
from tests.world.checks import check_all
from tests.world.process import APPENDER, WorkerProcess
from tests.world.progress import await_arrival
from tests.world.wanted import Wanted

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux limits the file size of another process"
)

FULL_BYTES = 4096
"""The first page of any file and no more, so that not even an old page can be written again."""


@pytest.fixture
def app(sqlite_url: str) -> Iterator[App]:
    with build_app(sqlite_url) as app:
        app.migrate()
        yield app


def test_worker_recovers_when_there_is_room_again(app: App, sqlite_url: str) -> None:
    with WorkerProcess(Wanted(sqlite_url)) as worker:
        for turn in range(1, 4):
            append(app)
            await_arrival(sqlite_url)
            fill_disk(worker)
            append(app)
            for name in PROJECTIONS:
                worker.wait_until_said(f"PollFailed {name}", times=2 * turn)
            check_all(sqlite_url)
            make_room(worker)
            await_arrival(sqlite_url)
            check_all(sqlite_url, complete=True)
        assert worker.stop() == 0, worker
    assert any("disk" in line for line in worker.lines)


@pytest.mark.parametrize("room_bytes", [0, 5_000, 20_000, 80_000])
def test_worker_runs_out_of_room_half_way(app: App, sqlite_url: str, room_bytes: int) -> None:
    """Some of a transaction's pages are in the log already when the rest finds no room."""
    log = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal")
    append(app)
    with WorkerProcess(Wanted(sqlite_url)) as worker:
        await_arrival(sqlite_url)
        fill_disk(worker, log.stat().st_size + room_bytes)
        while not all(worker.said(f"PollFailed {name}") for name in PROJECTIONS):
            append(app)
        check_all(sqlite_url)
        make_room(worker)
        await_arrival(sqlite_url)
        assert worker.stop() == 0, worker
    check_all(sqlite_url, complete=True)


def test_worker_stops_with_a_message_after_enough_failures(app: App, sqlite_url: str) -> None:
    append(app)
    with WorkerProcess(Wanted(sqlite_url, max_failures=3)) as worker:
        await_arrival(sqlite_url)
        fill_disk(worker)
        append(app)
        for name in PROJECTIONS:
            worker.wait_until_said(f"Faulted {name}")
        assert worker.wait() == 3, worker
    message = next(line for line in worker.lines if "projection faulted" in line)
    assert "journal.db" in message
    assert "disk" in message
    check_all(sqlite_url)

    with WorkerProcess(Wanted(sqlite_url)) as next_one:
        await_arrival(sqlite_url)
        assert next_one.stop() == 0, next_one
    check_all(sqlite_url, complete=True)


def test_appends_that_fail_leave_nothing(sqlite_url: str) -> None:
    with WorkerProcess(Wanted(sqlite_url), command=APPENDER) as appender:
        for turn in range(1, 4):
            appender.wait_until_said("Appended", times=len(said(appender, "Appended")) + 5)
            fill_disk(appender)
            appender.wait_until_said("Failed", times=5 * turn)
            make_room(appender)
        appender.wait_until_said("Appended", times=len(said(appender, "Appended")) + 5)
        appender.kill()
    acknowledged = {id_ for line in said(appender, "Appended") for id_ in line.split()[1:]}
    failed = {word for line in said(appender, "Failed") for word in line.split() if len(word) == 36}

    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:
        journal = {id_ for (id_,) in raw.execute("SELECT id FROM holdfast_event")}
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    print(f"{len(acknowledged)} events acknowledged, {len(failed)} failed")
    assert acknowledged <= journal
    assert not failed & journal
    # The last append may have been killed between its commit and its word.
    assert len(journal - acknowledged) <= 4


def append(app: App) -> None:
    for n in range(10):
        app.journal.append(f"account-{n % 3}", [Moved(n)] * 5)


def said(worker: WorkerProcess, start: str) -> list[str]:
    return [line for line in list(worker.lines) if line.startswith(start)]


def fill_disk(worker: WorkerProcess, max_file_bytes: int = FULL_BYTES) -> None:
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (max_file_bytes, resource.RLIM_INFINITY))


def make_room(worker: WorkerProcess) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, unlimited)
