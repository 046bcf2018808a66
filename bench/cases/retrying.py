"""Lanes that retry: how long a healthy event waits while many others are tried in vain.

Each attempt at a parked event takes 100 ms and fails, and comes again after a second: more than one
runner can do. The events of `latency` come meanwhile, and each may wait for one such attempt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from bench import steady
from bench.case import Case, Database, Scale
from bench.cases import latency
from bench.cases.holdfast import Balance, FundsCredited
from bench.commits import Commits
from bench.ratios import ATTEMPT_SECONDS
from bench.steady import EVENTS_PER_SECOND
from holdfast import App, Backoff, Event, Park, Policy, TableProjection, on

LANES = 1_000
EVERY_SECOND = Backoff(max_attempts=None, delay_seconds=1.0, max_delay_seconds=1.0, jitter=0.0)


@dataclass
class Rejected:
    """An event that can't be applied."""


def cases(scale: Scale) -> list[Case]:
    events = round(scale.live_seconds * EVENTS_PER_SECOND)
    return [
        Case(
            name=f"retrying/{database}/{name}",
            database=database,
            loaded_events=lanes,
            load=load,
            run=partial(latency.run, projecting=worker, events=events),
            check=steady.check,
        )
        for database in Database
        for name, lanes in (("none", 0), ("many", LANES))
    ]


def load(url: str, lanes: int) -> None:
    """So many lanes, each with an event that has failed once."""
    with closing(make_app(url, attempt_seconds=0.0)) as app:
        for number in range(lanes):
            app.journal.append(f"rejected-{number}", [Rejected()])
        app.catch_up()


@contextmanager
def worker(url: str) -> Iterator[Commits]:
    commits = Commits()
    with closing(make_app(url, attempt_seconds=ATTEMPT_SECONDS)) as app:
        commits.listen_to(app)
        with app.running():
            yield commits


def make_app(url: str, *, attempt_seconds: float) -> App:
    app = App(url)

    @app.projection(policy=Policy(on_error=Park(retry=EVERY_SECOND)))
    class AccountBalance(TableProjection[Balance]):
        @on(FundsCredited)
        def credited(self, row: Balance, event: Event[FundsCredited]) -> None:
            row.balance += event.data.amount
            row.version = event.version
            row.updated_at = event.recorded_at

        @on(Rejected)
        def rejected(self, _row: Balance, _event: Event[Rejected]) -> None:
            time.sleep(attempt_seconds)
            raise ValueError("rejected")

    return app
