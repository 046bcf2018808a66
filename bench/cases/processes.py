"""Catching up in two processes: four projections, and one projection in two shards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from bench import catch_up, journal
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.cases.holdfast import add_table
from bench.together import together
from holdfast import App
from holdfast.runtime.limits import LIMITS

PROCESSES = 2
PROJECTIONS = 4
WAIT_SECONDS = 600.0


def cases(scale: Scale) -> list[Case]:
    names = {"one": 1, "two": PROCESSES}
    return [
        *(
            Case(
                name=f"processes/{database}/{name}",
                database=database,
                loaded_events=scale.events,
                load=journal.load,
                run=partial(run_all, processes=processes, events=scale.events),
                check=check_all,
            )
            for database in Database
            for name, processes in names.items()
        ),
        *(
            Case(
                name=f"catch-up/postgres/{name}",
                database=Database.POSTGRES,
                loaded_events=scale.events,
                load=journal.load,
                run=partial(run_shards, work=work, events=scale.events),
                check=catch_up.check,
            )
            for name, work in (("shards", work_shard), ("shards-10k", work_small_shard))
        ),
    ]


def run_all(url: str, *, processes: int, events: int) -> Sample:
    """Has four projections catch up, spread over so many processes."""
    work = partial(work_part, of=processes)
    return together(url, processes=processes, work=work, events=PROJECTIONS * events)


def work_part(url: str, number: int, begin: Callable[[], object], *, of: int) -> Sample:
    with closing(App(url)) as app:
        for table in tables():
            add_table(app, table)
        head = app.journal.head()
        begin()
        watch = Stopwatch()
        supervisor = app.supervise(until=head, part=(number, of))
        supervisor.start()
        supervisor.join()
        return watch.sample(0)


def check_all(url: str, sample: Sample) -> None:
    """Every table has every event once."""
    one = Sample(sample.events // PROJECTIONS, sample.seconds, sample.cpu_seconds)
    for table in tables():
        catch_up.check(url, one, table=table)


def tables() -> list[str]:
    return [f"balance_{number}" for number in range(1, PROJECTIONS + 1)]


def run_shards(
    url: str, *, work: Callable[[str, int, Callable[[], object]], Sample], events: int
) -> Sample:
    """Has one projection catch up in as many shards as there are processes."""
    return together(url, processes=PROCESSES, work=work, events=events)


def work_shard(
    url: str, number: int, begin: Callable[[], object], *, fold_events: int = LIMITS.fold_events
) -> Sample:
    with closing(catch_up.flushing(App(url), fold_events)) as app:
        add_table(app, "account_balance", shards=PROCESSES)
        head = app.journal.head()
        begin()
        watch = Stopwatch()
        supervisor = app.supervise(part=(number, PROCESSES))
        supervisor.start()
        app.wait_for("account_balance", head, timeout_seconds=WAIT_SECONDS)
        sample = watch.sample(0)
        supervisor.stop()
        supervisor.join()
        return sample


def work_small_shard(url: str, number: int, begin: Callable[[], object]) -> Sample:
    return work_shard(url, number, begin, fold_events=10_000)
