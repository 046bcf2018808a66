"""eventsource-py: a DatabaseProjection under a SubscriptionManager, and its store's append.

Of what its documentation offers, this is the fastest: the checkpoint is the manager's, once per
batch of 500, and not the projection's as well, which would commit twice per event.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID

import psycopg
from eventsource import (
    DatabaseProjection,
    DomainEvent,
    InMemoryEventBus,
    SQLCheckpointRepository,
    handles,
    register_event,
)
from eventsource.adapters.postgresql.store import PostgreSQLEventStore
from eventsource.adapters.sqlite.store import SQLiteEventStore
from eventsource.application.subscriptions import SubscriptionConfig, SubscriptionManager
from eventsource.domain import StreamId
from eventsource.migrations import get_schema
from eventsource.ports import ExpectedVersion
from sqlalchemy import text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    async_sessionmaker,
    create_async_engine,
)

from bench import append, workload
from bench.append import PAYLOAD, Turns, Writing
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.catch_up import case, table
from bench.connection import is_sqlite, sqlite_path

EVENTS_PER_BATCH = 500
POLL_SECONDS = 0.01


def cases(scale: Scale) -> list[Case]:
    events = scale.peer_events
    return [
        case("eventsource-py", Database.POSTGRES, events=events, load=load_postgres, run=catch_up),
        case("eventsource-py", Database.SQLITE, events=events, load=load_sqlite, run=catch_up),
        *append.cases(
            "eventsource-py", scale, run=append_together, load=load_postgres, table="events"
        ),
    ]


@register_event
class AccountOpened(DomainEvent):
    aggregate_type: str = "Account"
    account_id: str
    owner: str
    currency: str
    opening_balance: int
    branch: str


@register_event
class FundsCredited(DomainEvent):
    aggregate_type: str = "Account"
    account_id: str
    amount: int
    currency: str
    reference: str
    channel: str


@register_event
class FundsDebited(DomainEvent):
    aggregate_type: str = "Account"
    account_id: str
    amount: int
    currency: str
    reference: str
    channel: str


TYPES = {type_.__name__: type_ for type_ in (AccountOpened, FundsCredited, FundsDebited)}


class Balances(DatabaseProjection):
    @handles(AccountOpened)
    async def opened(self, connection: AsyncConnection, event: AccountOpened) -> None:
        await connection.execute(
            text(
                "INSERT INTO account_balance (account_id, balance, version, updated_at)"
                " VALUES (:account, :amount, :version, :at)"
            ),
            self.parameters(connection, event, event.opening_balance),
        )

    @handles(FundsCredited)
    async def credited(self, connection: AsyncConnection, event: FundsCredited) -> None:
        await self.move(connection, event, event.amount)

    @handles(FundsDebited)
    async def debited(self, connection: AsyncConnection, event: FundsDebited) -> None:
        await self.move(connection, event, -event.amount)

    async def move(self, connection: AsyncConnection, event: DomainEvent, amount: int) -> None:
        await connection.execute(
            text(
                "UPDATE account_balance"
                " SET balance = balance + :amount, version = :version, updated_at = :at"
                " WHERE account_id = :account"
            ),
            self.parameters(connection, event, amount),
        )

    def parameters(
        self, connection: AsyncConnection, event: DomainEvent, amount: int
    ) -> dict[str, object]:
        at = event.occurred_at
        return {
            "account": str(event.aggregate_id),
            "amount": amount,
            "version": event.aggregate_version,
            "at": at.isoformat() if connection.dialect.name == "sqlite" else at,
        }


def catch_up(url: str, *, events: int) -> Sample:
    """From the manager's start until it has processed the last event."""
    # It logs several lines per event; nobody would run it like that.
    logging.disable(logging.INFO)
    return asyncio.run(_catch_up(url, events))


async def _catch_up(url: str, events: int) -> Sample:
    store: PostgreSQLEventStore | SQLiteEventStore
    if is_sqlite(url):
        engine = create_async_engine(f"sqlite+aiosqlite:///{sqlite_path(url)}")
        store = SQLiteEventStore(str(sqlite_path(url)))
    else:
        engine = _postgres_engine(url)
        store = PostgreSQLEventStore(engine)
    manager = SubscriptionManager(store, InMemoryEventBus(), SQLCheckpointRepository(engine))
    projection = Balances(session_factory=async_sessionmaker(engine, expire_on_commit=False))
    subscription = await manager.subscribe(
        projection, SubscriptionConfig(start_from="beginning", batch_size=EVENTS_PER_BATCH)
    )
    watch = Stopwatch()
    await manager.start()
    while subscription.events_processed < events:
        await asyncio.sleep(POLL_SECONDS)
    sample = watch.sample(events)
    await manager.stop()
    await engine.dispose()
    if is_sqlite(url):
        await store.close()
    return sample


def append_together(url: str, *, writing: Writing) -> Sample:
    """`PostgreSQLEventStore.append`."""
    return append.write_together(url, write=_write, writing=writing)


def _write(url: str, turns: Turns) -> None:
    logging.disable(logging.INFO)
    asyncio.run(_write_turns(url, turns))


async def _write_turns(url: str, turns: Turns) -> None:
    engine = _postgres_engine(url)
    store = PostgreSQLEventStore(engine)
    await store.current_position()  # it connects when first used
    for stream, version in turns:
        await store.append(
            StreamId(aggregate_id=stream, category="Account"),
            [
                FundsCredited(aggregate_id=stream, aggregate_version=version + nth, **PAYLOAD)
                for nth in range(1, turns.batch + 1)
            ],
            ExpectedVersion.exact(version) if version else ExpectedVersion.no_stream(),
        )
    await engine.dispose()


def _postgres_engine(url: str) -> AsyncEngine:
    return create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:", 1))


def load_postgres(url: str, count: int) -> None:
    """The peer's own schema, with the events copied straight into its table."""
    with psycopg.connect(url, autocommit=True) as connection:
        # The extensions it asks for are not needed by what is measured, nor always there.
        schema = "\n".join(
            line for line in get_schema("all").splitlines() if "CREATE EXTENSION" not in line
        )
        connection.execute(schema.encode())
        connection.execute(table(url).encode())
        with connection.cursor().copy(
            "COPY events (event_id, event_type, aggregate_type, aggregate_id, version, timestamp,"
            " payload) FROM STDIN"
        ) as copy:
            for event in _domain_events(count):
                copy.write_row(
                    (
                        event.event_id,
                        event.event_type,
                        "Account",
                        event.aggregate_id,
                        event.aggregate_version,
                        event.occurred_at,
                        event.model_dump_json(),
                    )
                )
        connection.execute("VACUUM ANALYZE")


def load_sqlite(url: str, count: int) -> None:
    """The peer's own schema, with the events inserted straight into its table."""
    asyncio.run(_create_sqlite_schema(url))
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        connection.execute(table(url))
        connection.executemany(
            "INSERT INTO events (event_id, event_type, aggregate_type, aggregate_id, version,"
            " timestamp, payload, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    str(event.event_id),
                    event.event_type,
                    "Account",
                    str(event.aggregate_id),
                    event.aggregate_version,
                    event.occurred_at.isoformat(),
                    event.model_dump_json(),
                    event.occurred_at.isoformat(),
                )
                for event in _domain_events(count)
            ),
        )
        connection.commit()


async def _create_sqlite_schema(url: str) -> None:
    store = SQLiteEventStore(str(sqlite_path(url)))
    await store.current_position()  # it makes its tables when first used
    await store.close()


def _domain_events(count: int) -> Iterator[DomainEvent]:
    for event in workload.events(count):
        yield TYPES[event.type](
            event_id=event.id,
            aggregate_id=UUID(event.stream),
            aggregate_version=event.version,
            occurred_at=event.recorded_at,
            **event.data,
        )
