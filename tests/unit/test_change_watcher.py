"""The watcher of a SQLite file, which wakes runners after appends of other processes."""

from pathlib import Path

import pytest

from holdfast import App, NewEvent
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.sqlite import change_watcher
from holdfast.sql.sqlite.change_watcher import ChangeWatcher
from holdfast.sql.sqlite.database import SqliteDatabase

WAIT_SECONDS = 30.0
FOR_EVER_SECONDS = 3_600.0


def test_it_looks_as_soon_as_somebody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it may take its time."""
    monkeypatch.setattr(change_watcher, "QUIET_CHECK_SECONDS", FOR_EVER_SECONDS)
    path, wake = tmp_path / "bank.db", WakeSignal()
    with App(f"sqlite:///{path}") as other:
        other.migrate()
        watcher = ChangeWatcher(SqliteDatabase(path).open_reader, wake)
        wake.wait(wake.count, WAIT_SECONDS)  # It has seen what there is.
        heard = wake.count
        for n in range(3):
            other.journal.append("a", [NewEvent({}, type="Added")], expected_version=n)
            assert wake.wait(heard, WAIT_SECONDS)
            heard = wake.count
        assert heard >= 4
        watcher.close()  # At once, though nobody waits.
