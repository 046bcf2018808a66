"""A worker with a backlog takes SQLite's write lock again and again: others get their turn."""

from tests.support.postgres import wait_until
from tests.world.app import Moved, build_app
from tests.world.process import WorkerProcess
from tests.world.progress import read_progress
from tests.world.wanted import Wanted

APPENDS = 5


def position(url: str) -> int:
    return read_progress(url).positions.get("ledger", 0)


def test_a_busy_worker_lets_others_write(sqlite_url: str) -> None:
    """It commits six events a second, and begins again at once: a writer that waits is the next."""
    with build_app(sqlite_url) as app:
        app.migrate()
        app.journal.append("account-1", [Moved(1) for _ in range(200)])
        passed = []
        with WorkerProcess(Wanted(sqlite_url, slow_seconds=0.6)) as worker:
            wait_until(lambda: position(sqlite_url) > 0, 30, "a commit")
            for _ in range(APPENDS):
                before = position(sqlite_url)
                app.journal.append("account-2", [Moved(1)])
                passed.append(position(sqlite_url) - before)
            assert worker.is_running
            assert read_progress(sqlite_url).backlog > 0
        print(f"events that the worker applied while an append waited: {passed}")
        assert sum(passed) <= 7 * APPENDS
