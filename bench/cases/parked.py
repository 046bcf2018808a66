"""Parked lanes: whether a batch takes longer when many lanes wait that are none of its concern.

Of the lanes that wait, half do so for a person, and half for tomorrow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from uuid import UUID

from bench import journal, waves
from bench.append import PAYLOAD
from bench.case import Case, Database, Sample, Scale, Stopwatch, WrongResult
from bench.cases.holdfast import FundsCredited, table_app
from bench.catch_up import FLUSH_EVENTS, flushing
from bench.commits import Commits
from bench.connection import connect, is_sqlite, native
from bench.workload import AccountEvent

WARM_UP_BATCHES = 20
LIVE_BATCHES = 200
DELAY_SECONDS = 86_400
RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)

PARK = """
INSERT INTO holdfast_queue (
    projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
    recorded_at, status, next_attempt_at, created_at, updated_at
)
SELECT
    'account_balance', 'journal', stream, position, stream, version, id, type, '', '',
    recorded_at, CASE position & 1 WHEN 1 THEN 'failed' ELSE 'dead' END,
    CASE position & 1 WHEN 1 THEN ? END, recorded_at, recorded_at
FROM holdfast_event WHERE position <= ?
"""
CLOSE_LANES = """
INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
SELECT projection, feed, lane, 1, next_attempt_at FROM holdfast_queue
"""
PASS = "UPDATE holdfast_checkpoint SET position = ?"


def cases(scale: Scale) -> list[Case]:
    return [
        case
        for name, lanes in (("none", 0), ("many", scale.parked_lanes))
        for database in Database
        for case in (
            Case(
                name=f"parked-batch/{database}/{name}",
                database=database,
                loaded_events=scale.parked_batches * FLUSH_EVENTS,
                load=partial(load, lanes=lanes),
                run=run_batches,
                check=partial(check_batches, lanes=lanes),
            ),
            Case(
                name=f"parked-live/{database}/{name}",
                database=database,
                loaded_events=0,
                load=partial(load, lanes=lanes),
                run=run_live,
                check=partial(check_live, lanes=lanes),
            ),
        )
    ]


def run_batches(url: str) -> Sample:
    """Catches up; timed from the first commit to the last, so that no start is in it."""
    commits = Commits()
    with closing(table_app(url)) as app:
        commits.listen_to(app)
        watch = Stopwatch()
        flushing(app, FLUSH_EVENTS).catch_up()
        sample = watch.sample(0)
    first, last = commits.moments[0], commits.moments[-1]
    return Sample(
        events=last.position - first.position,
        seconds=last.at - first.at,
        cpu_seconds=sample.cpu_seconds,
    )


def run_live(url: str) -> Sample:
    """Appends one event at a time to a running worker, each when the one before is committed.

    Timed from the append's return to the commit; the sample is so many batches of median length.
    """
    commits, seconds, cpu_seconds = Commits(), [], 0.0
    with closing(table_app(url)) as app:
        commits.listen_to(app)
        with app.running():
            for version in range(WARM_UP_BATCHES + LIVE_BATCHES):
                appended = app.journal.append(
                    "account", [FundsCredited(**PAYLOAD)], expected_version=version
                )
                began, cpu = time.perf_counter(), time.process_time()
                commits.wait_for(appended.position)
                if version >= WARM_UP_BATCHES:
                    seconds.append(max(0.0, commits.moments[-1].at - began))
                    cpu_seconds += time.process_time() - cpu
    return Sample(
        events=LIVE_BATCHES, seconds=LIVE_BATCHES * median(seconds), cpu_seconds=cpu_seconds
    )


def load(url: str, count: int, *, lanes: int) -> None:
    """W2, behind the events of parked lanes that the projection has passed already."""
    journal.make(url)
    with closing(table_app(url)) as app:
        app.catch_up()  # makes the table and the checkpoint
    if lanes:
        journal.fill(url, _parked_events(lanes))
    if count:
        waves.fill(url, count, after=lanes)
    tomorrow = datetime.now(UTC) + timedelta(seconds=DELAY_SECONDS)
    with closing(connect(url)) as connection:
        at = tomorrow.isoformat() if is_sqlite(url) else tomorrow
        connection.execute(native(PARK, url), (at, lanes))
        connection.execute(CLOSE_LANES)
        connection.execute(native(PASS, url), (lanes,))
        connection.commit()
        connection.execute("ANALYZE")
        connection.commit()


def check_batches(url: str, sample: Sample, *, lanes: int) -> None:
    """The read model is right, and all lanes still wait."""
    waves.check(url, sample, after=lanes)
    _check_lanes(url, lanes)


def check_live(url: str, _: Sample, *, lanes: int) -> None:
    """Every event was applied once, and all lanes still wait."""
    with closing(connect(url)) as connection:
        found = connection.execute("SELECT version, balance FROM account_balance").fetchall()
    events = WARM_UP_BATCHES + LIVE_BATCHES
    if found != [(events, events * PAYLOAD["amount"])]:
        raise WrongResult(f"version and balance of the accounts are {found} after {events} events")
    _check_lanes(url, lanes)


def _check_lanes(url: str, lanes: int) -> None:
    with closing(connect(url)) as connection:
        found = connection.execute("SELECT count(*) FROM holdfast_lane").fetchone()
    if found != (lanes,):
        raise WrongResult(f"{found} lanes are closed, and should {lanes}")


def _parked_events(lanes: int) -> Iterator[AccountEvent]:
    for position in range(1, lanes + 1):
        yield AccountEvent(
            position=position,
            stream=f"parked-{position:07d}",
            version=1,
            id=UUID(int=position - 1),
            type="FundsCredited",
            data=PAYLOAD,
            recorded_at=RECORDED_AT,
        )
