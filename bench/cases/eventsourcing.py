"""eventsourcing: a Projection with its own view, and its recorder's insert.

On PostgreSQL a ProjectionRunner drives it. Its SQLite recorder offers no subscription, so there
the notification log is pulled, as its documentation describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder
from eventsourcing.utils import get_topic
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL

from bench import append, workload
from bench.append import PAYLOAD, Turns, Writing
from bench.case import Case, Database, Sample, Scale, Stopwatch
from bench.catch_up import POSTGRES_TABLE, SQLITE_TABLE, case
from bench.connection import is_sqlite, sqlite_path

EVENTS_PER_PULL = 500
EVENTS_PER_INSERT = 2_000
POLL_SECONDS = 0.05

INSERT = (
    "INSERT INTO account_balance (balance, version, updated_at, account_id) VALUES (?, ?, ?, ?)"
)
UPDATE = (
    "UPDATE account_balance SET balance = balance + ?, version = ?, updated_at = ?"
    " WHERE account_id = ?"
)


def cases(scale: Scale) -> list[Case]:
    events = scale.peer_events
    return [
        case("eventsourcing", Database.POSTGRES, events=events, load=load, run=catch_up_postgres),
        case("eventsourcing", Database.SQLITE, events=events, load=load, run=catch_up_sqlite),
        *append.cases("eventsourcing", scale, run=append_together, load=load, table="bank_events"),
    ]


class Account(Aggregate):
    class Opened(Aggregate.Created):
        account_id: str
        owner: str
        currency: str
        opening_balance: int
        branch: str

    class Credited(Aggregate.Event):
        account_id: str
        amount: int
        currency: str
        reference: str
        channel: str

    class Debited(Aggregate.Event):
        account_id: str
        amount: int
        currency: str
        reference: str
        channel: str


class Bank(Application[UUID]):
    name = "Bank"


class PostgresView(PostgresTrackingRecorder):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sql_create_statements.append(
            SQL(POSTGRES_TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        )

    def apply(self, statement: str, event: Any, amount: int, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                statement.replace("?", "%s"),
                (amount, event.originator_version, event.timestamp, str(event.originator_id)),
                prepare=True,
            )


class SqliteView(SQLiteTrackingRecorder):
    def construct_create_table_statements(self) -> list[str]:
        statements: list[str] = super().construct_create_table_statements()
        return [*statements, SQLITE_TABLE.replace("TABLE", "TABLE IF NOT EXISTS")]

    def apply(self, statement: str, event: Any, amount: int, tracking: Tracking) -> None:
        at = event.timestamp.isoformat()
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                statement, (amount, event.originator_version, at, str(event.originator_id))
            )


class Balances(Projection[Any]):
    name = "balances"
    topics = tuple(
        get_topic(type_) for type_ in (Account.Opened, Account.Credited, Account.Debited)
    )

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise NotImplementedError(f"no handler for {domain_event}")

    @process_event.register
    def opened(self, domain_event: Account.Opened, tracking: Tracking) -> None:
        self.view.apply(INSERT, domain_event, domain_event.opening_balance, tracking)

    @process_event.register
    def credited(self, domain_event: Account.Credited, tracking: Tracking) -> None:
        self.view.apply(UPDATE, domain_event, domain_event.amount, tracking)

    @process_event.register
    def debited(self, domain_event: Account.Debited, tracking: Tracking) -> None:
        self.view.apply(UPDATE, domain_event, -domain_event.amount, tracking)


def catch_up_postgres(url: str, *, events: int) -> Sample:
    """From the runner's start until its view has tracked the last event."""
    watch = Stopwatch()
    with ProjectionRunner(
        application_class=Bank,
        projection_class=Balances,
        view_class=PostgresView,
        env=_environment(url),
    ) as runner:
        # Its own wait() looks every 0.8 s: too seldom for a short run.
        while not runner.view.has_tracking_id(Bank.name, events):
            runner.run_forever(timeout=POLL_SECONDS)
        return watch.sample(events)


def catch_up_sqlite(url: str, *, events: int) -> Sample:
    """From the first pull of the notification log to the last."""
    with Bank(_environment(url)) as bank:
        view = bank.factory.tracking_recorder(SqliteView)
        projection = Balances(view)
        watch = Stopwatch()
        position = view.max_tracking_id(Bank.name)
        while notifications := bank.recorder.select_notifications(
            start=position,
            limit=EVENTS_PER_PULL,
            topics=Balances.topics,
            inclusive_of_start=False,
        ):
            for notification in notifications:
                event = bank.mapper.to_domain_event(notification)
                projection.process_event(event, Tracking(Bank.name, notification.id))
            position = notifications[-1].id
        return watch.sample(events)


def append_together(url: str, *, writing: Writing) -> Sample:
    """`insert_events` of the application's recorder."""
    return append.write_together(url, write=_write, writing=writing)


def _write(url: str, turns: Turns) -> None:
    # The tables are there; writers that all made sure of it at once would trip each other up.
    with Bank({**_environment(url), "CREATE_TABLE": "n"}) as bank:
        for stream, version in turns:
            bank.recorder.insert_events(
                [
                    bank.mapper.to_stored_event(
                        Account.Credited(
                            originator_id=stream,
                            originator_version=version + nth,
                            timestamp=Account.Credited.create_timestamp(),
                            **PAYLOAD,
                        )
                    )
                    for nth in range(1, turns.batch + 1)
                ]
            )


def load(url: str, count: int) -> None:
    """W1's first events, inserted through the application's recorder."""
    with Bank(_environment(url)) as bank:
        stored = _stored_events(bank, count)
        while batch := list(islice(stored, EVENTS_PER_INSERT)):
            bank.recorder.insert_events(batch)


def _stored_events(bank: Bank, count: int) -> Iterator[StoredEvent]:
    for event in workload.events(count):
        originator = {
            "originator_id": UUID(event.stream),
            "originator_version": event.version,
            "timestamp": event.recorded_at,
        }
        if event.type == "AccountOpened":
            domain_event = Account.Opened(
                **originator, originator_topic=get_topic(Account), **event.data
            )
        elif event.type == "FundsCredited":
            domain_event = Account.Credited(**originator, **event.data)
        else:
            domain_event = Account.Debited(**originator, **event.data)
        yield bank.mapper.to_stored_event(domain_event)


def _environment(url: str) -> dict[str, str]:
    if is_sqlite(url):
        return {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(sqlite_path(url)),
        }
    parts = conninfo_to_dict(url)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(parts["dbname"]),
        "POSTGRES_HOST": str(parts["host"]),
        "POSTGRES_PORT": str(parts["port"]),
        "POSTGRES_USER": str(parts["user"]),
        "POSTGRES_PASSWORD": str(parts.get("password", "not needed")),
    }
