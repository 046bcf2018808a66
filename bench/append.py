"""Appending: many writers at once, on PostgreSQL.

Whatever is Python runs in a process per writer: threads would share one interpreter lock. What
the clients burn themselves is in each sample's `cpu_seconds`.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from bench.case import Case, Database, Sample, Scale, Stopwatch, WrongResult
from bench.connection import connect
from bench.measure import Measure, percentile

T = TypeVar("T")

EVENTS_PER_STREAM = 20
CONNECT_SECONDS = 60
BATCHES = (1, 10)

PAYLOAD: dict[str, Any] = {
    "account_id": "5e2d8a3c-0f57-4b7e-9a66-0c1d5a3f9b21",
    "amount": 1234,
    "currency": "EUR",
    "reference": "ref-0123456789ab",
    "channel": "web",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How many append at once, how many events at a time, and for how long."""

    writers: int
    batch: int
    seconds: float


class Run(Protocol):
    """Has the writers append."""

    def __call__(self, url: str, *, writing: Writing) -> Sample: ...


def cases(
    name: str, scale: Scale, *, run: Run, load: Callable[[str, int], None], table: str
) -> list[Case]:
    """The cases of one contestant, whose events end up in `table`: one for each batch size."""
    return [
        Case(
            name=f"append/{batch}/{name}",
            database=Database.POSTGRES,
            loaded_events=0,
            load=load,
            run=partial(
                run,
                writing=Writing(
                    writers=scale.append_writers, batch=batch, seconds=scale.append_seconds
                ),
            ),
            check=partial(_check, table=table),
        )
        for batch in BATCHES
    ]


class Turns:
    """The appends of one writer, until its time is up."""

    def __init__(self, barrier: Barrier, writing: Writing) -> None:
        self._barrier = barrier
        self._seconds = writing.seconds
        self.batch = writing.batch

    def __iter__(self) -> Iterator[tuple[UUID, int]]:
        """Each append's stream, and the version that the stream has before it.

        The first one comes when every writer has connected. An append counts when the next one
        is asked for: by then it has been committed.
        """
        self._barrier.wait(CONNECT_SECONDS)
        watch = Stopwatch()
        now = time.perf_counter()
        deadline = now + self._seconds
        appended = 0
        stream, version = uuid4(), 0
        self.append_seconds: list[float] = []
        while now < deadline:
            yield stream, version
            began, now = now, time.perf_counter()
            self.append_seconds.append(now - began)
            appended += self.batch
            version += self.batch
            if version >= EVENTS_PER_STREAM:
                stream, version = uuid4(), 0
        self._sample = watch.sample(appended)

    def abort(self) -> None:
        """Tells the writers that still wait for this one that it will not come."""
        self._barrier.abort()

    def sample(self) -> Sample:
        """What the writer has appended, when it has gone through all its turns."""
        return self._sample


Write = Callable[[str, Turns], None]
"""Connects to the URL, then appends `turns.batch` events for every turn."""


def write_together(url: str, *, write: Write, writing: Writing) -> Sample:
    """Runs `write` in every writer's process at the same time."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(writing.writers, context) as pool:
        turns = Turns(manager.Barrier(writing.writers), writing)
        results = _results([pool.submit(_write, url, write, turns) for _ in range(writing.writers)])
    samples = [sample for sample, _ in results]
    return Sample(
        events=sum(sample.events for sample in samples),
        seconds=max(sample.seconds for sample in samples),
        cpu_seconds=sum(sample.cpu_seconds for sample in samples),
        figures={Measure.LONG_APPEND: percentile([s for _, taken in results for s in taken], 95)},
    )


def _write(url: str, write: Write, turns: Turns) -> tuple[Sample, list[float]]:
    try:
        write(url, turns)
    except BaseException:
        turns.abort()
        raise
    return turns.sample(), turns.append_seconds


def _results(writers: Sequence[Future[T]]) -> list[T]:
    """All results, or the error of the writer that failed.

    The others then fail too, but know only that they have waited for it in vain.
    """
    wait(writers)
    errors = [error for writer in writers if (error := writer.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return [writer.result() for writer in writers]


def _check(url: str, sample: Sample, *, table: str) -> None:
    with closing(connect(url)) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    if found != (sample.events,):
        raise WrongResult(f"{sample.events:,} events were appended, and {found} are in {table}")
