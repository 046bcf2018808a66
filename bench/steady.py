"""Events that come while a worker runs: a hundred a second, from a process of its own."""

from __future__ import annotations

import multiprocessing
import random
import time
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing

from bench.append import PAYLOAD
from bench.case import Sample, WrongResult
from bench.cases.holdfast import FundsCredited
from bench.commits import Moment
from bench.connection import connect
from holdfast import App

EVENTS_PER_SECOND = 100
STREAM_COUNT = 100
WARM_UP_EVENTS = 50
"""What is appended first is not measured: connections are made, plans and caches are cold."""

# The versions of an account's events are 1, 2, 3, …, so the last one says how many they are.
APPLIED_SQL = "SELECT coalesce(sum(version), 0), coalesce(sum(balance), 0) FROM {table}"


def append_steadily(url: str, *, events: int) -> list[Moment]:
    """When each append began, and the position it drew. Blocks until all are in.

    They come from a process of its own, after some that are not measured.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_append, url, WARM_UP_EVENTS + events).result()[WARM_UP_EVENTS:]


def delays(appends: Sequence[Moment], commits: Sequence[Moment]) -> list[float]:
    """From each append's beginning to the first commit that has its position behind it."""
    reached = [commit.position for commit in commits]
    return [commits[bisect_left(reached, append.position)].at - append.at for append in appends]


def check(url: str, sample: Sample, *, table: str = "account_balance") -> None:
    """Every event is in the read model once."""
    expected = WARM_UP_EVENTS + sample.events
    with closing(connect(url)) as connection:
        found = connection.execute(APPLIED_SQL.format(table=table)).fetchone()
    if found != (expected, expected * PAYLOAD["amount"]):
        raise WrongResult(f"{found} events and funds are in {table} after {expected} events")


def _append(url: str, events: int) -> list[Moment]:
    chance = random.Random(3)
    moments = []
    with closing(App(url)) as app:
        app.journal.head()  # it connects when first used
        started = time.perf_counter()
        for number in range(events):
            # Not in step with anything that looks at regular times.
            due = started + (number + 0.8 * chance.random()) / EVENTS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
            at = time.perf_counter()
            version, stream = divmod(number, STREAM_COUNT)
            appended = app.journal.append(
                f"account-{stream}", [FundsCredited(**PAYLOAD)], expected_version=version
            )
            moments.append(Moment(appended.position, at))
    return moments
