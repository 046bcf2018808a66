"""One case of the benchmark: what is loaded, what is timed, what must be true afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bench.measure import Measure


class Database(StrEnum):
    """Where a case runs."""

    POSTGRES = "postgres"
    SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round of a case measured."""

    events: int
    seconds: float
    cpu_seconds: float
    """Processor time of the client, so that a client that was the bottleneck shows."""
    figures: Mapping[Measure, float] = field(default_factory=dict)
    """What else was measured."""

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    def value(self, measure: Measure) -> float:
        """What this round has measured of the kind."""
        match measure:
            case Measure.RATE:
                return self.events_per_second
            case Measure.CPU:
                return self.cpu_seconds
            case _:
                return self.figures[measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case. Every round gets a database of its own, made by `load` before the clock starts.

    The three functions must be importable by name: `run` is called in a fresh process, so that
    no case leaves threads, garbage or settings to the next.
    """

    name: str
    database: Database
    loaded_events: int
    load: Callable[[str, int], None]
    """Given a new database's URL and `loaded_events`, fills it."""
    run: Callable[[str], Sample]
    check: Callable[[str, Sample], None]
    """Raises `WrongResult` if what `run` left behind is not exactly right."""

    @property
    def group(self) -> str:
        """The cases it is compared with: all of the name but the contestant."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much work a run does."""

    rounds: int
    more_rounds: int
    """For the cases of a ratio that was above its bar in one round and below it in another."""
    events: int
    statement_events: int
    """For cases on PostgreSQL that send each event's statement on its own."""
    peer_events: int
    append_writers: int
    append_seconds: float
    slow_events: int
    """For each process whose handlers are slow."""
    claim_rows: int
    """In a queue that is long."""
    live_seconds: float
    """For how long events come while a worker runs."""
    growth_events: int
    """In a journal that is long."""
    parked_lanes: int
    """Where many lanes are parked."""
    parked_batches: int
    """That are applied behind them."""


FULL = Scale(
    rounds=3,
    more_rounds=4,
    events=200_000,
    statement_events=20_000,
    peer_events=1_500,
    append_writers=8,
    append_seconds=2.0,
    slow_events=160,
    claim_rows=1_000_000,
    live_seconds=6.0,
    growth_events=5_000_000,
    parked_lanes=100_000,
    parked_batches=5,
)
QUICK = Scale(
    rounds=1,
    more_rounds=0,
    events=20_000,
    statement_events=2_000,
    peer_events=300,
    append_writers=2,
    append_seconds=1.0,
    slow_events=40,
    claim_rows=20_000,
    live_seconds=1.0,
    growth_events=100_000,
    parked_lanes=5_000,
    parked_batches=2,
)


class WrongResult(Exception):
    """A case left a wrong result behind: its speed means nothing."""


class Stopwatch:
    """Runs from the moment it is made: wall clock and this process's processor time."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def sample(self, events: int) -> Sample:
        """The time until now, as the sample of `events` events."""
        return Sample(
            events=events,
            seconds=time.perf_counter() - self._wall,
            cpu_seconds=time.process_time() - self._cpu,
        )
