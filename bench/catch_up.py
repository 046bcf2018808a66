"""Catching up: every such case builds one read model from W1, and is checked by its sums."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Protocol

from bench.case import Case, Database, Sample, WrongResult
from bench.connection import connect, is_sqlite
from bench.workload import CHECK_SUMS_SQL, CheckSums, expected
from holdfast import App

POSTGRES_TABLE = """
CREATE TABLE account_balance (
    account_id text PRIMARY KEY,
    balance bigint NOT NULL,
    version int NOT NULL,
    updated_at timestamptz NOT NULL
)
"""
SQLITE_TABLE = """
CREATE TABLE account_balance (
    account_id text PRIMARY KEY,
    balance integer NOT NULL,
    version integer NOT NULL,
    updated_at text NOT NULL
) WITHOUT ROWID
"""


FLUSH_EVENTS = 50_000
"""Where a TableProjection is compared with SQL, or with itself, it folds so many before it writes.

By itself it folds as many as it has time for, which depends on the machine.
"""


def flushing(app: App, events: int) -> App:
    """The app, whose TableProjections fold at most this many events before they write."""
    app._limits = replace(app._limits, fold_events=events)
    return app


class Run(Protocol):
    """Applies `events` events that are there already to the read model, and times it."""

    def __call__(self, url: str, *, events: int) -> Sample: ...


def case(
    name: str, database: Database, *, events: int, load: Callable[[str, int], None], run: Run
) -> Case:
    """The case of one contestant on one database, over the first `events` events of W1."""
    return Case(
        name=f"catch-up/{database}/{name}",
        database=database,
        loaded_events=events,
        load=load,
        run=partial(run, events=events),
        check=check,
    )


def table(url: str) -> str:
    """The statement that makes the table on the URL's database."""
    return SQLITE_TABLE if is_sqlite(url) else POSTGRES_TABLE


def check(url: str, sample: Sample, *, table: str = "account_balance") -> None:
    """Raises `WrongResult` unless the table is exactly what the events amount to."""
    with closing(connect(url)) as connection:
        sums = connection.execute(CHECK_SUMS_SQL.format(table=table)).fetchone() or ()
    found = CheckSums(*(int(value or 0) for value in sums))
    if found != expected(sample.events):
        raise WrongResult(
            f"{table} after {sample.events:,} events adds up to {found}, "
            f"and should to {expected(sample.events)}"
        )
