"""Many processes start at once on an empty database: one makes the tables, all find them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg

from holdfast import App
from tests.world.app import Moved, build_app
from tests.world.checks import check_all
from tests.world.process import WorkerProcess
from tests.world.progress import await_arrival
from tests.world.wanted import Wanted

STARTERS = 8


def test_many_apps_migrate_at_once(store_url: str) -> None:
    """Each with connections of its own, as processes have; many times, for the race is short."""
    for _ in range(25):
        empty(store_url)
        together = threading.Barrier(STARTERS)

        def start(together: threading.Barrier = together) -> int:
            with App(store_url) as app:
                together.wait()
                return app.migrate()

        with ThreadPoolExecutor(STARTERS) as pool:
            ran = [future.result() for future in [pool.submit(start) for _ in range(STARTERS)]]
        assert sorted(ran)[:-1] == [0] * (STARTERS - 1)
        assert max(ran) > 0


def test_many_processes_start_at_once_and_die_one_by_one(store_url: str) -> None:
    with ExitStack() as stack, build_app(store_url) as app:
        workers = [stack.enter_context(WorkerProcess(Wanted(store_url))) for _ in range(6)]
        left = list(workers)
        for worker in workers:
            worker.wait_until_said("Loaded")
        while left:
            app.journal.append("account-1", [Moved(1)] * 10)
            await_arrival(store_url)
            check_all(store_url, complete=True)
            leaders = {status.leader for status in app.status() if status.leader}
            pids = {int(leader.rpartition(":")[2]) for leader in leaders}
            leading = [worker for worker in left if worker.pid in pids]
            assert leading
            for worker in leading:
                worker.kill()
                left.remove(worker)
    assert not any(worker.said("Faulted") or worker.said("PollFailed") for worker in workers)


def empty(url: str) -> None:
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
    else:
        with psycopg.connect(url) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
