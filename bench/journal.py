"""Events in holdfast's journal, put there past the append so that loading takes seconds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing

import psycopg

from bench import workload
from bench.connection import is_sqlite, sqlite_path
from bench.workload import AccountEvent
from holdfast import App

CACHE_PAGES = 50_000
"""With fewer, SQLite writes pages of its indexes again and again while a long journal is loaded."""


def load(url: str, count: int) -> None:
    """Makes the schema and fills the journal with the first `count` events of W1."""
    make(url)
    # An empty table stays as it was made: analysed, it would count as empty for ever, and the
    # plans of a benchmark of appends would read it from end to end.
    if count:
        fill(url, workload.events(count))


def make(url: str) -> None:
    """Makes the schema."""
    with closing(App(url)) as app:
        app.migrate()


def fill(url: str, events: Iterable[AccountEvent]) -> None:
    """Puts the events in the journal, at their positions."""
    if is_sqlite(url):
        _fill_sqlite(url, events)
    else:
        _fill_postgres(url, events)
    finish(url)


def finish(url: str) -> None:
    """What is in the journal now is as if it had been appended, long ago."""
    if is_sqlite(url):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            connection.execute("ANALYZE")
            connection.commit()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('holdfast_event', 'position'), max(position))"
            " FROM holdfast_event"
        )
        connection.execute("VACUUM ANALYZE")


def _fill_postgres(url: str, events: Iterable[AccountEvent]) -> None:
    with (
        psycopg.connect(url) as connection,
        connection.cursor().copy(
            "COPY holdfast_event (position, stream, version, id, type, data, metadata, recorded_at)"
            " FROM STDIN"
        ) as copy,
    ):
        for e in events:
            copy.write_row(
                (e.position, e.stream, e.version, e.id, e.type, e.json(), "{}", e.recorded_at)
            )


def _fill_sqlite(url: str, events: Iterable[AccountEvent]) -> None:
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        connection.execute(f"PRAGMA cache_size = {CACHE_PAGES}")
        connection.executemany(
            "INSERT INTO holdfast_event"
            " (position, stream, version, id, type, data, metadata, recorded_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    e.position,
                    e.stream,
                    e.version,
                    str(e.id),
                    e.type,
                    e.json(),
                    "{}",
                    e.recorded_at.isoformat(),
                )
                for e in events
            ),
        )
        connection.commit()
