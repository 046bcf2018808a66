"""A long journal: whether its last million events take longer than its first, and how much memory.

Both are taken from one worker, which has all the rest behind it when it comes to the last million.
"""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from bench import waves
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.cases.holdfast import table_app
from bench.catch_up import FLUSH_EVENTS
from bench.commits import Commits, Moment
from bench.measure import Measure

PARTS = 5
"""The first of so many equal parts of the journal is compared with the last."""


def cases(scale: Scale) -> list[Case]:
    # In each part several batches, on little data too.
    events = {d: max(scale.growth_events, 2 * PARTS * FLUSH_EVENTS) for d in Database}
    return [
        Case(
            name=f"growth/{database}/table",
            database=database,
            loaded_events=events[database],
            load=waves.load,
            run=partial(run, events=events[database]),
            check=waves.check,
        )
        for database in Database
    ]


def run(url: str, *, events: int) -> Sample:
    """Catches up, and notes how fast it was at first and at last."""
    commits = Commits()
    with closing(table_app(url)) as app:
        commits.listen_to(app)
        commits.note(0)
        watch = Stopwatch()
        app.catch_up()
        sample = watch.sample(events)
    return Sample(
        events=events,
        seconds=sample.seconds,
        cpu_seconds=sample.cpu_seconds,
        figures={
            Measure.FIRST_RATE: rate(commits.moments, after=0, up_to=events // PARTS),
            Measure.LAST_RATE: rate(commits.moments, after=events - events // PARTS, up_to=events),
            Measure.PEAK_MEMORY: peak_bytes(),
        },
    )


def rate(commits: list[Moment], *, after: int, up_to: int) -> float:
    """Events per second of all batches that have events between two positions."""
    start = next(commit for commit in reversed(commits) if commit.position <= after)
    end = next(commit for commit in commits if commit.position >= up_to)
    return (end.position - start.position) / (end.at - start.at)


def peak_bytes() -> float:
    """The most memory that this process has had at any time."""
    if sys.platform == "linux":
        # What getrusage says includes that of the process which started this one.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    return float(getrusage(RUSAGE_SELF).ru_maxrss)
