"""Many projections at the head of one journal: what eight cost together, beside one alone.

Events come one by one, a hundred a second, from a process of their own. All projections run in one
process, each with its own transactions; they share the reading, and keep a beat. What that costs
the one that is last in the list is told too.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

import psycopg

from bench import journal, steady
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.cases.holdfast import add_table
from bench.commits import Commits
from bench.measure import Measure, percentile
from bench.steady import EVENTS_PER_SECOND
from holdfast import App
from tests.support.postgres import wait_until

END_SECONDS = 30

# Readers look for positions. An append looks for streams and ids, by other indexes, and never reads
# the table from end to end.
READS_SQL = """
SELECT t.seq_scan + i.idx_scan
FROM pg_stat_user_tables AS t
JOIN pg_stat_user_indexes AS i USING (relid)
WHERE t.relname = 'holdfast_event' AND i.indexrelname = 'holdfast_event_pkey'
"""
OTHERS_SQL = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def cases(scale: Scale) -> list[Case]:
    events = round(scale.live_seconds * EVENTS_PER_SECOND)
    return [
        Case(
            name=f"many/postgres/{name}",
            database=Database.POSTGRES,
            loaded_events=0,
            load=journal.load,
            run=partial(run, tables=tables(count), events=events),
            check=partial(check, tables=tables(count)),
        )
        for name, count in (("one", 1), ("eight", 8))
    ]


def tables(count: int) -> list[str]:
    return [f"balance_{number}" for number in range(1, count + 1)]


def run(url: str, *, tables: list[str], events: int) -> Sample:
    """What a worker has read and burnt when all its projections have every event."""
    app = App(url)
    with closing(app):
        for table in tables:
            add_table(app, table)
        commits = Commits.of_each(app, tables)
        with app.running():
            watch = Stopwatch()
            appends = steady.append_steadily(url, events=events)
            for committed in commits.values():
                committed.wait_for(appends[-1].position)
            sample = watch.sample(events)
    delays = steady.delays(appends, commits[tables[-1]].moments)
    return Sample(
        events=events,
        seconds=appends[-1].at - appends[0].at,
        cpu_seconds=sample.cpu_seconds,
        figures={
            Measure.CPU: sample.cpu_seconds,
            Measure.JOURNAL_READS: journal_reads(url),
            Measure.MEDIAN_DELAY: percentile(delays, 50),
            Measure.LONG_DELAY: percentile(delays, 99),
        },
    )


def check(url: str, sample: Sample, *, tables: list[str]) -> None:
    """Every table has every event once."""
    for table in tables:
        steady.check(url, sample, table=table)


def journal_reads(url: str) -> float:
    """What the server has counted; a connection reports the last of it when it ends."""
    with psycopg.connect(url, autocommit=True) as connection:
        wait_until(
            lambda: connection.execute(OTHERS_SQL).fetchone() == (0,),
            END_SECONDS,
            "the worker's connections to end",
        )
        (reads,) = connection.execute(READS_SQL).fetchone() or (0,)
    return float(reads)
