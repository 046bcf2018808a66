"""Outbox delivery to handlers that wait for something else: how many are run at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

from bench import journal
from bench.case import Case, Database, Sample, Scale, Stopwatch, WrongResult
from bench.cases.holdfast import AccountOpened, FundsCredited, FundsDebited
from bench.cases.outbox import queue_all
from bench.connection import connect, native
from bench.together import together
from holdfast import App, Event, Projection, Tx, on

HANDLER_SECONDS = 0.2
CONCURRENCY = 8
TABLE = "CREATE TABLE done (position bigint PRIMARY KEY)"
INSERT = "INSERT INTO done (position) VALUES (?)"
LEFT_SQL = "SELECT (SELECT count(*) FROM done), (SELECT count(*) FROM holdfast_queue)"


def cases(scale: Scale) -> list[Case]:
    return [
        Case(
            name=f"slow/{database}/{name}",
            database=database,
            loaded_events=processes * scale.slow_events,
            load=load_registered,
            run=partial(run, processes=processes, events=processes * scale.slow_events),
            check=check,
        )
        for database, name, processes in (
            (Database.POSTGRES, "one-process", 1),
            (Database.POSTGRES, "two-processes", 2),
            (Database.SQLITE, "one-process", 1),
        )
    ]


def run(url: str, *, processes: int, events: int) -> Sample:
    """Has so many processes work on the queue until it is empty."""
    return together(url, processes=processes, work=work, events=events)


def work(url: str, _: int, begin: Callable[[], object]) -> Sample:
    with closing(slow_app(url)) as app:
        begin()
        watch = Stopwatch()
        app.catch_up()
        return watch.sample(0)


def slow_app(url: str) -> App:
    app = App(url)
    insert = native(INSERT, url)

    @app.projection(delivery="outbox", concurrency=CONCURRENCY)
    class Slow(Projection):
        tables: ClassVar = {"done": TABLE}

        @on(AccountOpened, FundsCredited, FundsDebited)
        def moved(self, event: Event[Any], tx: Tx) -> None:
            time.sleep(HANDLER_SECONDS)
            tx.execute(insert, (event.position,))

    return app


def load_registered(url: str, count: int) -> None:
    """W1, whose first events are almost all in lanes of their own."""
    journal.load(url, count)
    with closing(slow_app(url)) as app:
        queue_all(app)


def check(url: str, sample: Sample) -> None:
    """Every event was handled, and none waits."""
    with closing(connect(url)) as connection:
        found = connection.execute(LEFT_SQL).fetchone()
    if found != (sample.events, 0):
        raise WrongResult(f"{found} events are done and left, of {sample.events:,}")
