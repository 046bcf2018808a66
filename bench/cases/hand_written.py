"""What people write by hand: a loop with each event's SQL, and set-based SQL as the limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial

import psycopg

from bench import journal
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.catch_up import FLUSH_EVENTS, case, table
from bench.connection import Connection, connect, is_sqlite, native
from bench.workload import change

EVENTS_PER_TRANSACTION = 500


def set_sizes() -> dict[str, int]:
    """The cases of set-based SQL, and the events in each of their transactions.

    A TableProjection is measured with both, and a SqlProjection has the second by itself, so that
    what it is faster by is not its size.
    """
    return {
        "set-based": 10_000,
        "set-based-50k": FLUSH_EVENTS,
    }


READ = """
SELECT position, stream, version, type, data, recorded_at
FROM holdfast_event WHERE position > ? ORDER BY position LIMIT ?
"""
INSERT = """
INSERT INTO account_balance (balance, version, updated_at, account_id) VALUES (?, ?, ?, ?)
"""
UPDATE = """
UPDATE account_balance SET balance = balance + ?, version = ?, updated_at = ? WHERE account_id = ?
"""
APPLY_SET = """
INSERT INTO account_balance AS kept (account_id, balance, version, updated_at)
SELECT stream,
       sum(CASE type
           WHEN 'AccountOpened' THEN CAST(data ->> 'opening_balance' AS bigint)
           WHEN 'FundsCredited' THEN CAST(data ->> 'amount' AS bigint)
           ELSE -CAST(data ->> 'amount' AS bigint)
           END),
       max(version),
       max(recorded_at)
FROM holdfast_event
WHERE position > ? AND position <= ?
GROUP BY stream
ON CONFLICT (account_id) DO UPDATE
SET balance = kept.balance + excluded.balance,
    version = excluded.version,
    updated_at = excluded.updated_at
"""
SAVE_CHECKPOINT = "UPDATE bench_checkpoint SET position = ?"


def cases(scale: Scale) -> list[Case]:
    few, many = scale.statement_events, scale.events
    load = journal.load
    return [
        case("hand-written", Database.POSTGRES, events=few, load=load, run=loop),
        case("hand-written-pipeline", Database.POSTGRES, events=few, load=load, run=pipeline),
        case("hand-written", Database.SQLITE, events=many, load=load, run=loop),
        *(
            case(name, database, events=many, load=load, run=partial(sets, size_events=size))
            for database in Database
            for name, size in set_sizes().items()
        ),
    ]


def loop(url: str, *, events: int) -> Sample:
    """One statement per event, 500 events and the checkpoint in a transaction."""
    with prepared(url) as connection:
        return _loop(url, connection, events=events, sending=nullcontext)


def pipeline(url: str, *, events: int) -> Sample:
    """The same in psycopg's pipeline mode: no statement waits for the answer to the one before."""
    with prepared(url) as connection:
        assert isinstance(connection, psycopg.Connection)
        return _loop(url, connection, events=events, sending=connection.pipeline)


def sets(url: str, *, events: int, size_events: int) -> Sample:
    """One statement per `size_events` events and the checkpoint in a transaction: no event leaves
    the database, so nothing that moves events through Python can be faster."""
    apply, save = native(APPLY_SET, url), native(SAVE_CHECKPOINT, url)
    with prepared(url) as connection:
        watch = Stopwatch()
        for start in range(0, events, size_events):
            end = min(start + size_events, events)
            connection.execute(apply, (start, end))
            connection.execute(save, (end,))
            connection.commit()
        return watch.sample(events)


def _loop(
    url: str,
    connection: Connection,
    *,
    events: int,
    sending: Callable[[], AbstractContextManager[object]],
) -> Sample:
    """The loop; what changes something is sent, and is in, when `sending()` ends."""
    read, insert, update, save = (
        native(sql, url) for sql in (READ, INSERT, UPDATE, SAVE_CHECKPOINT)
    )
    watch = Stopwatch()
    position = 0
    while batch := connection.execute(read, (position, EVENTS_PER_TRANSACTION)).fetchall():
        with sending():
            for _, stream, version, type_, data, recorded_at in batch:
                # psycopg has decoded it already.
                payload = data if isinstance(data, dict) else json.loads(data)
                connection.execute(
                    insert if type_ == "AccountOpened" else update,
                    (change(type_, payload), version, recorded_at, stream),
                )
            position = batch[-1][0]
            connection.execute(save, (position,))
            connection.commit()
    return watch.sample(events)


@contextmanager
def prepared(url: str) -> Iterator[Connection]:
    """A connection to a database with an empty read model and a checkpoint at zero."""
    with closing(connect(url)) as connection:
        if is_sqlite(url):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(table(url))
        connection.execute("CREATE TABLE bench_checkpoint (position bigint NOT NULL)")
        connection.execute("INSERT INTO bench_checkpoint VALUES (0)")
        connection.commit()
        yield connection
