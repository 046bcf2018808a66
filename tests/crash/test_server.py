"""PostgreSQL goes away in the middle: killed and restarted, or cutting every connection."""

import random
from collections.abc import Callable
from contextlib import ExitStack

import psycopg

from holdfast import App
from tests.support.postgres import PostgresServer
from tests.world.app import build_app
from tests.world.appender import Appender
from tests.world.checks import check_all
from tests.world.process import WorkerProcess
from tests.world.progress import await_arrival, await_progress, read_progress
from tests.world.wanted import Wanted

BACKLOG_EVENTS = 300


def test_server_killed_and_restarted_in_the_middle() -> None:
    with PostgresServer(durable=True) as server:
        url = server.create_database()

        def crash() -> None:
            server.kill()
            server.restart()

        failures = disturb(url, crash, times=3)
    assert failures > 0


def test_every_connection_cut_again_and_again(postgres_url: str) -> None:
    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as operator:
            ended = operator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND application_name = 'holdfast'"
            ).fetchall()
        assert len(ended) >= 3  # both runners and the lease are connected, or there is no progress

    failures = disturb(postgres_url, cut, times=20)
    assert failures > 0


def disturb(url: str, disturbance: Callable[[], None], *, times: int) -> int:
    """Disturbs a worker and an appender at work; returns how many appends failed.

    Neither is started again: both have to find their way back by themselves.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with (
        migrated_app(url) as app,
        WorkerProcess(Wanted(url, slow_seconds=0.003, batch_events=20)) as worker,
        ExitStack() as stack,
    ):
        appenders = [
            Appender(app, seed=seed + n, may_append=lambda: is_near(url)) for n in range(3)
        ]
        for appender in appenders:
            stack.enter_context(appender)
        for _ in range(times):
            await_progress(url)
            disturbance()
            check_all(url)
        await_progress(url)
        stack.close()
        await_arrival(url)
        journal = [event.id for event in app.journal.read_raw()]
        assert worker.stop() == 0, worker
    checked = check_all(url, complete=True)
    failures = sum(appender.failures for appender in appenders)
    print(f"{times} times, {failures} appends failed and were repeated; {checked}")
    assert sorted(journal) == sorted(id_ for one in appenders for id_ in one.acknowledged)
    assert worker.said("PollFailed") or worker.said("LeaseLost")
    return failures


def migrated_app(url: str) -> App:
    app = build_app(url)
    app.migrate()
    return app


def is_near(url: str) -> bool:
    """Whether the worker is near the head, or can't be asked after."""
    try:
        return read_progress(url).backlog < BACKLOG_EVENTS
    except psycopg.OperationalError:
        return True
