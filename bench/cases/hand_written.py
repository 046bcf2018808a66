"""What people write by hand: a loop with each event's SQL, and set-based SQL as the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

from bench import journal
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.catch_up import case, table
from bench.connection import Connection, connect, is_sqlite, native
from bench.workload import change

EVENTS_PER_TRANSACTION = 500
EVENTS_PER_SET = 10_000

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
    return [
        case(
            "hand-written",
            Database.POSTGRES,
            events=scale.statement_events,
            load=journal.load,
            run=loop,
        ),
        case("hand-written", Database.SQLITE, events=scale.events, load=journal.load, run=loop),
        case("set-based", Database.POSTGRES, events=scale.events, load=journal.load, run=sets),
        case("set-based", Database.SQLITE, events=scale.events, load=journal.load, run=sets),
    ]


def loop(url: str, *, events: int) -> Sample:
    """One statement per event, 500 events and the checkpoint in a transaction."""
    read, insert, update, save = (
        native(sql, url) for sql in (READ, INSERT, UPDATE, SAVE_CHECKPOINT)
    )
    with _prepared(url) as connection:
        watch = Stopwatch()
        position = 0
        while batch := connection.execute(read, (position, EVENTS_PER_TRANSACTION)).fetchall():
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


def sets(url: str, *, events: int) -> Sample:
    """One statement per 10,000 events and the checkpoint in a transaction: no event leaves the
    database, so nothing that moves events through Python can be faster."""
    apply, save = native(APPLY_SET, url), native(SAVE_CHECKPOINT, url)
    with _prepared(url) as connection:
        watch = Stopwatch()
        for start in range(0, events, EVENTS_PER_SET):
            end = start + EVENTS_PER_SET
            connection.execute(apply, (start, end))
            connection.execute(save, (end,))
            connection.commit()
        return watch.sample(events)


@contextmanager
def _prepared(url: str) -> Iterator[Connection]:
    """A connection to a database with an empty read model and a checkpoint at zero."""
    with closing(connect(url)) as connection:
        if is_sqlite(url):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(table(url))
        connection.execute("CREATE TABLE bench_checkpoint (position bigint NOT NULL)")
        connection.execute("INSERT INTO bench_checkpoint VALUES (0)")
        connection.commit()
        yield connection
