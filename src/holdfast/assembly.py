"""One database with all that is put together on it: sessions, feeds, workers.

What belongs to one process (threads, locks, the head reader) is made anew in the child of a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, assert_never
from uuid import uuid4
from weakref import WeakSet

from holdfast.catalog import Catalog
from holdfast.clock import SystemClock
from holdfast.errors import Fenced, HoldfastError
from holdfast.logs import log_signal
from holdfast.model.definition import Definition, Foreign, Log, lane_of
from holdfast.model.definition import Outbox as OutboxDelivery
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.running import STOP_SECONDS
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.limits import LIMITS
from holdfast.runtime.outbox.inline import Inline
from holdfast.runtime.outbox.relay import Relay
from holdfast.runtime.outbox.replay import replay
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.run.hooks import Hooks
from holdfast.runtime.run.runner import Runner
from holdfast.runtime.run.supervisor import Supervisor
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.shards.shard_worker import ShardWorker
from holdfast.runtime.signals import Committed, Faulted, Signal, Signals
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import QueueItem
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.database import Database, handled_database
from holdfast.sql.forks import at_fork
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.journal.positions import check_drawn
from holdfast.sql.migrations import check_migrated, has_tables, migrate
from holdfast.sql.outbox.claims import OpenTransaction, SqlClaims
from holdfast.sql.outbox.registration import register
from holdfast.sql.sqlite.database import SqliteDatabase
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.store.session import SqlLeases, SqlSession
from holdfast.sql.store.shard_layouts import SqlShardLayouts
from holdfast.sql.url import SqliteUrl, parse_url


class Assembly:
    """A database, what is registered on it, and how its workers are made."""

    def __init__(
        self, url: str, *, auto_migrate: bool, clock: Clock | None, events: EventTypes | None
    ) -> None:
        self.url = parse_url(url)
        self.events = events or EventTypes()
        self._clock = clock or SystemClock()
        self._auto_migrate = auto_migrate
        self._limits = LIMITS
        self._catalog = Catalog()
        self._sources: dict[str, ForeignSource] = {}
        self._database: Database = _open(self.url)
        self._layouts = SqlShardLayouts(self._database)
        self._signals = Signals()
        self._signals.listen(log_signal)
        self._signals.listen(self._on_signal)
        self._prepared = self._migrated = self._has_tables = False
        self._supervisors: WeakSet[Supervisor] = WeakSet()
        self._begin_process()
        at_fork(self, Assembly._begin_process)

    def _begin_process(self) -> None:
        """Makes what belongs to one process; also called in the child of a fork."""
        self._preparing = threading.Lock()
        self._hooks: dict[str, Hooks] = {}
        self._progress = WakeSignal()
        self._head_reader = HeadReader(self._database)
        self._inline = Inline(self._relay, self._open_session, wake=self._database.announce)

    def close(self) -> None:
        """Closes all connections. Stop what runs first."""
        self._inline.close(STOP_SECONDS)
        self._head_reader.close()
        self._database.close()

    def _prepare(self) -> None:
        if self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                if self._auto_migrate:
                    migrate(self._database)
                else:
                    check_migrated(self._database)
                self._check_drawn()
                for definition in self._catalog:
                    if isinstance(definition.delivery, OutboxDelivery):
                        register(self._database, definition)
                self._prepared = True

    def has_tables(self) -> bool:
        """Whether the database has holdfast's tables. What only reads does not make them.

        With `auto_migrate=False`, raises SchemaError if it has not.
        """
        if not (self._prepared or self._migrated or self._has_tables):
            if not self._auto_migrate:
                check_migrated(self._database)
            self._has_tables = has_tables(self._database)
        return self._prepared or self._migrated or self._has_tables

    def _check_prepared(self) -> None:
        """Where somebody's transaction is open, a migration could wait for it for ever."""
        if not (self._prepared or self._migrated):
            check_migrated(self._database)
            self._check_drawn()
            self._migrated = True

    def _check_drawn(self) -> None:
        with self._database.reading() as connection:
            check_drawn(connection)

    # Workers

    def _open_session(self) -> SqlSession:
        self._prepare()
        return SqlSession(self._database)

    def _context(self, definition: Definition) -> RunnerContext:
        pid = os.getpid()

        def open_session() -> SqlSession:
            if os.getpid() != pid:
                raise Fenced("this process was forked by a handler; its parent runs the projection")
            return self._open_session()

        def open_source(session: object) -> Source:
            assert isinstance(session, SqlSession)
            shares = len(self._catalog.names) > 1 or definition.shards > 1
            return JournalSource(
                session,
                self._head_reader,
                shares=shares,
                start=definition.start,
                clock=self._clock,
            )

        return RunnerContext(
            feed=definition.feed,
            open_session=open_session,
            open_source=open_source,
            leases=SqlLeases(self._database, self._head_reader),
            types=self.events,
            clock=self._clock,
            signals=self._signals,
            wake=self._database.wake,
            hooks=self._hooks.setdefault(definition.name, Hooks(definition.kind.projection)),
            limits=self._limits,
        )

    def _worker(
        self, definition: Definition, until: int | None, part: tuple[int, int] | None
    ) -> Worker:
        context = self._context(definition)
        match definition.delivery:
            case Log(shards=1):
                return Runner(definition, context, until=until)
            case Log():
                return ShardWorker(definition, context, self._layouts, part=part, until=until)
            case OutboxDelivery():
                return self._relay(definition, until)
            case Foreign():
                source = self._sources[definition.name]
                return source.worker(definition, context, catches_up=until is not None)
            case _:
                assert_never(definition.delivery)

    def _relay(self, definition: Definition, until: int | None = None) -> Relay:
        def open_claims(session: Session) -> SqlClaims:
            assert isinstance(session, SqlSession)
            return SqlClaims(session, definition, clock=self._clock)

        return Relay(definition, self._context(definition), open_claims=open_claims, until=until)

    def _supervise(
        self, workers: Sequence[Worker], renewed: Callable[[Worker], Worker] | None = None
    ) -> Supervisor:
        supervisor = Supervisor(workers, wake=self._database.wake.notify, renewed=renewed)
        self._supervisors.add(supervisor)
        return supervisor

    def _refuse_handlers(self, what: str) -> None:
        is_handling = handled_database.get() is self._database
        if is_handling or any(supervisor.runs_this for supervisor in self._supervisors):
            raise HoldfastError(f"projections can't {what} from inside a handler of the same app")

    def _on_signal(self, signal: Signal) -> None:
        if isinstance(signal, Committed | Faulted):
            self._progress.notify()

    # What the journal, the queue and the outbox ask for

    def _apply_inline(self, stream: str, types: Sequence[str]) -> frozenset[str]:
        return self._inline.apply(self._catalog, stream, types)

    def _replay(self, item: QueueItem, change: ChangedBy) -> None:
        definition = self._catalog.find(item.projection)
        self._refuse_handlers("replay items")
        relay = self._relay(definition)
        token = f"replay-{uuid4().hex}"
        try:
            relay.prepare()
            with closing(self._open_session()) as session, closing(Invoker()) as invoker:
                for attempt in operator_transactions(self._database):
                    with attempt as connection:
                        transaction = OpenTransaction(connection)
                        claims = SqlClaims(transaction, definition, clock=self._clock)
                        taken = claims.claim_item(token, item)
                        change.write(connection, "replay", item.projection, {"items": [item.id]})
                replay(relay, token, taken, session, invoker)
        finally:
            relay.leave()

    def _lane_of(self, projection: str, event: RawEvent) -> str:
        return lane_of(self._catalog.find(projection), self.events, event)


def _open(url: Any) -> Database:
    if isinstance(url, SqliteUrl):
        return SqliteDatabase(url.path)
    from holdfast.sql.postgres.database import PostgresDatabase

    return PostgresDatabase(url)
