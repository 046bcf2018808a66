"""From an append to the committed row: holdfast's worker, and a hand-written one that polls.

Events come one by one, a hundred a second, from a process of their own. A delay begins before the
append is called. It ends when the commit of the row has returned to the worker: from then on,
whoever reads the table finds the row. Both times are taken alike for both contestants.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from bench import journal, steady
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.cases.hand_written import EVENTS_PER_TRANSACTION, READ, SAVE_CHECKPOINT, prepared
from bench.cases.holdfast import table_app
from bench.commits import Commits
from bench.connection import Connection, native
from bench.measure import Measure, percentile
from bench.steady import EVENTS_PER_SECOND

POLL_SECONDS = 0.1

UPSERT = """
INSERT INTO account_balance AS kept (account_id, balance, version, updated_at) VALUES (?, ?, ?, ?)
ON CONFLICT (account_id) DO UPDATE
SET balance = kept.balance + excluded.balance,
    version = excluded.version,
    updated_at = excluded.updated_at
"""

Projecting = Callable[[str], AbstractContextManager[Commits]]
"""Runs a worker on the database until the block ends."""


def cases(scale: Scale) -> list[Case]:
    events = round(scale.live_seconds * EVENTS_PER_SECOND)
    return [
        Case(
            name=f"latency/postgres/{name}",
            database=Database.POSTGRES,
            loaded_events=0,
            load=journal.load,
            run=partial(run, projecting=projecting, events=events),
            check=steady.check,
        )
        for name, projecting in (("holdfast", holdfast), ("polling", polling))
    ]


def run(url: str, *, projecting: Projecting, events: int) -> Sample:
    """The delays of so many events."""
    with projecting(url) as commits:
        watch = Stopwatch()
        appends = steady.append_steadily(url, events=events)
        commits.wait_for(appends[-1].position)
        sample = watch.sample(events)
    delays = steady.delays(appends, commits.moments)
    return Sample(
        events=events,
        seconds=appends[-1].at - appends[0].at,
        cpu_seconds=sample.cpu_seconds,
        figures={
            Measure.MEDIAN_DELAY: percentile(delays, 50),
            Measure.LONG_DELAY: percentile(delays, 99),
        },
    )


@contextmanager
def holdfast(url: str) -> Iterator[Commits]:
    """A worker as it is without any setting: appends wake it."""
    commits = Commits()
    with closing(table_app(url)) as app:
        commits.listen_to(app)
        with app.running():
            yield commits


@contextmanager
def polling(url: str) -> Iterator[Commits]:
    """A loop that reads on for as long as it finds events, and then sleeps for 100 ms."""
    commits, stop = Commits(), threading.Event()
    with prepared(url) as connection:
        thread = threading.Thread(target=_poll, args=(url, connection, commits, stop))
        thread.start()
        try:
            yield commits
        finally:
            stop.set()
            thread.join()


def _poll(url: str, connection: Connection, commits: Commits, stop: threading.Event) -> None:
    read, upsert, save = (native(sql, url) for sql in (READ, UPSERT, SAVE_CHECKPOINT))
    position = 0
    while not stop.is_set():
        batch = connection.execute(read, (position, EVENTS_PER_TRANSACTION)).fetchall()
        for _, stream, version, _, data, recorded_at in batch:
            connection.execute(upsert, (stream, data["amount"], version, recorded_at))
        if batch:
            position = batch[-1][0]
            connection.execute(save, (position,))
        connection.commit()
        if batch:
            commits.note(position)
        else:
            stop.wait(POLL_SECONDS)
