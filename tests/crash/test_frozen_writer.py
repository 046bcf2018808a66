"""A process that is frozen inside a write transaction holds SQLite's one write lock.

Nobody can take that lock away, so neither an append nor `depose` can get through: they say who
holds it. Reading goes on, and nothing is lost or doubled, whether the process is ended or wakes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, StoreUnavailable
from holdfast.sql.sqlite import connection as sqlite_connection
from holdfast.sql.sqlite import database as sqlite
from tests.support.postgres import wait_until
from tests.world.app import Moved, build_app, reached
from tests.world.checks import check_all
from tests.world.process import WorkerProcess
from tests.world.progress import await_arrival
from tests.world.wanted import Wanted


@pytest.fixture
def app(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    for module in (sqlite, sqlite_connection):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.2)
    with build_app(sqlite_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def frozen(app: App, sqlite_url: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    """Frozen in the middle of the second of three events."""
    hold = tmp_path / "hold"
    hold.touch()
    app.journal.append("account-1", [Moved(1), Moved(2, hold=str(hold)), Moved(3)])
    with WorkerProcess(Wanted(sqlite_url)) as worker:
        wait_until(reached(hold, worker.pid).exists, 30, "the handler to be inside")
        worker.freeze()
        hold.unlink()
        yield worker


def test_writers_are_told_whom_they_wait_for(app: App, frozen: WorkerProcess) -> None:
    who = f"process {frozen.pid}" if sys.platform == "linux" else "another process"
    for attempt in (
        lambda: app.journal.append("account-1", [Moved(4)]),
        lambda: app.depose("ledger"),
    ):
        with pytest.raises(StoreUnavailable, match=f"locked; .* transaction of {who}\\."):
            attempt()

    assert len(list(app.journal.read())) == 3
    leaders = {status.leader for status in app.status() if status.projection == "ledger"}
    assert None not in leaders, "it was deposed by half"
    assert [status.position for status in app.status() if status.projection == "ledger"] == [0]


def test_the_next_worker_goes_on_when_it_is_ended(
    app: App, frozen: WorkerProcess, sqlite_url: str
) -> None:
    with pytest.raises(StoreUnavailable):
        app.journal.append("account-1", [Moved(4)])
    frozen.kill()
    app.journal.append("account-1", [Moved(4)])
    with WorkerProcess(Wanted(sqlite_url)) as next_one:
        await_arrival(sqlite_url)
        assert next_one.stop() == 0, next_one
    assert check_all(sqlite_url, complete=True).events == 4


def test_it_goes_on_where_it_was_when_it_wakes(
    app: App, frozen: WorkerProcess, sqlite_url: str
) -> None:
    """Deposing it has failed, but has taken its lease: it finishes what it had begun, no more."""
    with pytest.raises(StoreUnavailable):
        app.depose("ledger")
    with WorkerProcess(Wanted(sqlite_url)) as standby:
        standby.wait_until_said("Loaded")
        frozen.wake()
        await_arrival(sqlite_url)
        app.journal.append("account-1", [Moved(4)] * 3)
        await_arrival(sqlite_url)
        assert check_all(sqlite_url, complete=True).events == 6
        frozen.kill()
        app.journal.append("account-1", [Moved(5)] * 3)
        await_arrival(sqlite_url)
    assert check_all(sqlite_url, complete=True).events == 9
