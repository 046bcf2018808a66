"""holdfast catching up: a TableProjection, and a Projection with handlers that send SQL."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import msgspec

from bench import journal
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.catch_up import case, flushing, table
from bench.connection import is_sqlite, native
from holdfast import App, Event, Projection, SqlProjection, TableProjection, Tx, on
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.signals import Signal, Started

Delivery = Literal["log", "outbox"]

INSERT = (
    "INSERT INTO account_balance (balance, version, updated_at, account_id) VALUES (?, ?, ?, ?)"
)
UPDATE = (
    "UPDATE account_balance SET balance = balance + ?, version = ?, updated_at = ?"
    " WHERE account_id = ?"
)


APPLY_BATCH = """
INSERT INTO account_balance AS kept (account_id, balance, version, updated_at)
SELECT stream,
       sum(CASE type
           WHEN 'AccountOpened' THEN opening_balance
           WHEN 'FundsCredited' THEN amount
           ELSE -amount
           END),
       max(version),
       max(recorded_at)
FROM batch
WHERE true
GROUP BY stream
ON CONFLICT (account_id) DO UPDATE
SET balance = kept.balance + excluded.balance,
    version = excluded.version,
    updated_at = excluded.updated_at
"""


def cases(scale: Scale) -> list[Case]:
    few, many = scale.statement_events, scale.events
    load = journal.load
    return [
        case("table", Database.POSTGRES, events=many, load=load, run=catch_up_table),
        case("table-10k", Database.POSTGRES, events=many, load=load, run=catch_up_10k),
        case("table-50k", Database.POSTGRES, events=many, load=load, run=catch_up_50k),
        case("table", Database.SQLITE, events=many, load=load, run=catch_up_table),
        case("sql", Database.POSTGRES, events=many, load=load, run=catch_up_sql),
        case("sql", Database.SQLITE, events=many, load=load, run=catch_up_sql),
        case("handlers", Database.POSTGRES, events=few, load=load, run=catch_up_handlers),
        case("handlers-pipelined", Database.POSTGRES, events=few, load=load, run=catch_up_writing),
        case("handlers", Database.SQLITE, events=many, load=load, run=catch_up_handlers),
    ]


class AccountOpened(msgspec.Struct, frozen=True):
    account_id: str
    owner: str
    currency: str
    opening_balance: int
    branch: str


class FundsCredited(msgspec.Struct, frozen=True):
    account_id: str
    amount: int
    currency: str
    reference: str
    channel: str


class FundsDebited(msgspec.Struct, frozen=True):
    account_id: str
    amount: int
    currency: str
    reference: str
    channel: str


@dataclass(slots=True)
class Balance:
    account_id: str
    balance: int = 0
    version: int = 0
    updated_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


def catch_up_table(url: str, *, events: int) -> Sample:
    return catch_up(table_app(url), events)


def catch_up_10k(url: str, *, events: int) -> Sample:
    """It writes as often as the set-based SQL that it is compared with."""
    return catch_up(flushing(table_app(url), 10_000), events)


def catch_up_50k(url: str, *, events: int) -> Sample:
    return catch_up(flushing(table_app(url), 50_000), events)


def catch_up_handlers(url: str, *, events: int) -> Sample:
    return catch_up(handlers_app(url), events)


def catch_up_writing(url: str, *, events: int) -> Sample:
    return catch_up(handlers_app(url, waits=False), events)


def catch_up_sql(url: str, *, events: int) -> Sample:
    return catch_up(sql_app(url), events)


def table_app(url: str, *, delivery: Delivery = "log", source: ForeignSource | None = None) -> App:
    app = App(url)
    add_table(app, "account_balance", delivery=delivery, source=source)
    return app


def add_table(
    app: App,
    name: str,
    *,
    delivery: Delivery = "log",
    source: ForeignSource | None = None,
    shards: int = 1,
) -> None:
    """A TableProjection of this name, which is its table's as well."""

    @app.projection(name=name, delivery=delivery, source=source, shards=shards)
    class AccountBalance(TableProjection[Balance]):
        @on(AccountOpened)
        def opened(self, row: Balance, event: Event[AccountOpened]) -> None:
            self.move(row, event, event.data.opening_balance)

        @on(FundsCredited)
        def credited(self, row: Balance, event: Event[FundsCredited]) -> None:
            self.move(row, event, event.data.amount)

        @on(FundsDebited)
        def debited(self, row: Balance, event: Event[FundsDebited]) -> None:
            self.move(row, event, -event.data.amount)

        def move(self, row: Balance, event: Event[Any], amount: int) -> None:
            row.balance += amount
            row.version = event.version
            row.updated_at = event.recorded_at


def sql_app(url: str) -> App:
    """The statement that is the limit, read from `batch`."""
    app = App(url)

    @app.projection
    class AccountBalance(SqlProjection):
        tables: ClassVar = {"account_balance": table(url)}
        events = (AccountOpened, FundsCredited, FundsDebited)
        sql = APPLY_BATCH

    return app


def handlers_app(url: str, *, delivery: Delivery = "log", waits: bool = True) -> App:
    """`waits`: for the answer to each statement."""
    app = App(url)
    insert, update = native(INSERT, url), native(UPDATE, url)
    is_text = is_sqlite(url)

    @app.projection(delivery=delivery)
    class AccountBalance(Projection):
        tables: ClassVar = {"account_balance": table(url)}

        @on(AccountOpened)
        def opened(self, event: Event[AccountOpened], tx: Tx) -> None:
            self.send(insert, event, event.data.opening_balance, tx)

        @on(FundsCredited)
        def credited(self, event: Event[FundsCredited], tx: Tx) -> None:
            self.send(update, event, event.data.amount, tx)

        @on(FundsDebited)
        def debited(self, event: Event[FundsDebited], tx: Tx) -> None:
            self.send(update, event, -event.data.amount, tx)

        def send(self, statement: str, event: Event[Any], amount: int, tx: Tx) -> None:
            at = event.recorded_at.isoformat() if is_text else event.recorded_at
            run = tx.execute if waits else tx.write
            run(statement, (amount, event.version, at, event.stream))

    return app


def catch_up(app: App, events: int) -> Sample:
    """The clock starts with the projection: everybody else, too, has connected and has a table."""
    watches: list[Stopwatch] = []

    def start(signal: Signal) -> None:
        if isinstance(signal, Started) and not watches:  # A topic's partitions start one by one.
            watches.append(Stopwatch())

    with closing(app):
        with closing(app._open_session()) as session:
            for definition in app._catalog:
                session.prepare(definition)
        app.listen(start)
        app.catch_up()
        return watches[0].sample(events)
