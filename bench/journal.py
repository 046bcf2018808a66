"""W1 in holdfast's journal, put there past the append so that loading takes seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

from bench.connection import is_sqlite, sqlite_path
from bench.workload import events
from holdfast import App


def load(url: str, count: int) -> None:
    """Makes the schema and fills the journal with the first `count` events of W1."""
    app = App(url)
    app.migrate()
    app.close()
    if is_sqlite(url):
        _fill_sqlite(url, count)
    else:
        _fill_postgres(url, count)


def _fill_postgres(url: str, count: int) -> None:
    # An empty table stays as it was made: analysed, it would count as empty for ever, and the
    # plans of a benchmark of appends would read it from end to end.
    if not count:
        return
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.cursor().copy(
            "COPY holdfast_event (position, stream, version, id, type, data, metadata, recorded_at)"
            " FROM STDIN"
        ) as copy:
            for e in events(count):
                copy.write_row(
                    (e.position, e.stream, e.version, e.id, e.type, e.json(), "{}", e.recorded_at)
                )
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('holdfast_event', 'position'), %s)", (count,)
        )
        connection.execute("VACUUM ANALYZE")


def _fill_sqlite(url: str, count: int) -> None:
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
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
                for e in events(count)
            ),
        )
        connection.commit()
        connection.execute("ANALYZE")
