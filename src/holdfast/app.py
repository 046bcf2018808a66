"""App: one database, its journal and its projections, put together."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, Self, TypeVar, assert_never, overload
from weakref import WeakSet

from holdfast.catalog import Catalog
from holdfast.clock import SystemClock
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    ProjectionFaulted,
    StoreUnavailable,
    WaitTimeout,
)
from holdfast.logs import guarded, log_signal
from holdfast.model.compile_projection import check_shards, compile_projection
from holdfast.model.definition import Definition, Delivery, Foreign, Log, Mode, lane_of
from holdfast.model.definition import Outbox as OutboxDelivery
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.model.policy import Policy
from holdfast.model.poll import Poll
from holdfast.model.projection import Projection, TableProjection
from holdfast.running import STOP_SECONDS, Running
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.limits import LIMITS
from holdfast.runtime.outbox.inline import Inline
from holdfast.runtime.outbox.relay import Relay
from holdfast.runtime.outbox.replay import replay
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.run.runner import Runner
from holdfast.runtime.run.supervisor import Supervisor
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.shards.layout import ShardLayout
from holdfast.runtime.shards.shard_worker import ShardWorker
from holdfast.runtime.signals import Committed, Faulted, Listener, Signal, Signals
from holdfast.runtime.status import ProjectionStatus
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.faults import fault_message
from holdfast.runtime.store.queue_items import AuditRow, QueueItem
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.database import Database, handled_database, refuse_handlers
from holdfast.sql.forks import at_fork
from holdfast.sql.journal.encode import EventEncoder
from holdfast.sql.journal.journal import Journal
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.migrations import check_migrated, migrate
from holdfast.sql.operate import lifecycle as upkeep
from holdfast.sql.operate import status as statuses
from holdfast.sql.operate.explain import Reason, explain
from holdfast.sql.operate.outbox import Outbox
from holdfast.sql.operate.queue import Queue
from holdfast.sql.outbox.claims import SqlClaims
from holdfast.sql.outbox.registration import first_left, register
from holdfast.sql.sqlite.database import SqliteDatabase
from holdfast.sql.store.audit import ChangedBy, read_audit
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.session import SqlLeases, SqlSession
from holdfast.sql.store.shard_layouts import SqlShardLayouts
from holdfast.sql.url import SqliteUrl, parse_url
from holdfast.threads import in_thread

S = TypeVar("S", bound=Projection)
P = TypeVar("P", bound=type[Projection] | type[TableProjection[Any]])

LOOK_SECONDS = 0.05
"""How often `wait_for` looks for the work of other processes."""


class App:
    """A database with a journal and the projections registered on it.

    `url` is `sqlite:///file.db`, `sqlite:///:memory:` or `postgresql://user@host/database`.
    Nothing is opened before it is needed. `auto_migrate` creates or updates holdfast's own tables
    on first use, safely when many processes start at once; without it, run `holdfast migrate`.
    `events` is a registry of event types to share with another App.
    """

    def __init__(
        self,
        url: str,
        *,
        max_payload_bytes: int = 1_000_000,
        auto_migrate: bool = True,
        clock: Clock | None = None,
        events: EventTypes | None = None,
    ) -> None:
        if max_payload_bytes < 1:
            raise ConfigError(f"max_payload_bytes is {max_payload_bytes}; it must be 1 or more")
        self.url = parse_url(url)
        self.events = events or EventTypes()
        self._clock = clock or SystemClock()
        self._auto_migrate = auto_migrate
        self._limits = LIMITS
        self._catalog = Catalog()
        self._sources: dict[str, ForeignSource] = {}
        self._database: Database = _open(self.url)
        self._head_reader = HeadReader(self._database)
        self._layouts = SqlShardLayouts(self._database)
        self._signals = Signals()
        self._signals.listen(log_signal)
        self._signals.listen(self._on_signal)
        self._prepared = self._migrated = False
        self._preparing = threading.Lock()
        self._progress = WakeSignal()
        self._supervisors: WeakSet[Supervisor] = WeakSet()
        self._inline = self._new_inline()
        records = EventEncoder(self.events, self._clock, max_payload_bytes=max_payload_bytes)
        self.journal = Journal(
            self._database,
            types=self.events,
            records=records,
            prepare=self._prepare,
            check_prepared=self._check_prepared,
            apply_inline=self._apply_inline,
        )
        self.queue = Queue(
            self._database,
            clock=self._clock,
            prepare=self._prepare,
            lane_of=self._lane_of,
            source_of=self._sources.get,
        )
        self.outbox = Outbox(
            self._database,
            self.queue,
            records=records,
            prepare=self._prepare,
            check_prepared=self._check_prepared,
            replay=self._replay,
        )
        at_fork(self, App._forked)

    def __repr__(self) -> str:
        return f"App({str(self.url)!r}, projections={list(self._catalog.names)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @overload
    def projection(self, cls: P) -> P: ...

    @overload
    def projection(
        self,
        *,
        name: str | None = None,
        source: ForeignSource | None = None,
        strict: bool = False,
        poll: Poll | None = None,
        policy: Policy | None = None,
        mask: Callable[[str], str] | bool = False,
        delivery: Literal["log", "outbox"] = "log",
        concurrency: int = 8,
        mode: Mode = "live",
        start: Literal["start", "now"] = "start",
        inline_seconds: float | None = None,
        keep_seconds: float = 0.0,
        shards: int = 1,
    ) -> Callable[[P], P]: ...

    def projection(
        self,
        cls: P | None = None,
        *,
        name: str | None = None,
        source: ForeignSource | None = None,
        strict: bool = False,
        poll: Poll | None = None,
        policy: Policy | None = None,
        mask: Callable[[str], str] | bool = False,
        delivery: Literal["log", "outbox"] = "log",
        concurrency: int = 8,
        mode: Mode = "live",
        start: Literal["start", "now"] = "start",
        inline_seconds: float | None = None,
        keep_seconds: float = 0.0,
        shards: int = 1,
    ) -> P | Callable[[P], P]:
        """Registers a projection class; usable as `@app.projection` or with settings.

        `name` defaults to the class name in snake case. `strict` makes an event type without a
        handler a fault, instead of passing it over. `policy` says what follows when an event fails,
        `poll` how the feed is read. `mask` keeps the text of errors out of the logs: True hides it,
        a function changes it. `source` says where the events come from, if not from the journal: a
        `holdfast.kafka.KafkaSource`.

        `delivery="outbox"` applies events from the queue, where every append puts them: up to
        `concurrency` lanes at once in each process, for handlers that are slow. The other settings
        are for that: a projection on a journal that has events gets them from the `start`, or only
        those that come from `now` on; in `mode` "off" the queue fills and nobody works. With
        `inline_seconds`, an append waits up to that long for its events to be applied at once, in
        its own process, and says whether they were. What is done leaves the queue, after
        `keep_seconds`.

        With `shards`, so many runners share the streams, in as many processes as there are: for a
        projection that one processor can't keep up with. It is what a projection begins with; the
        database keeps the number, and `reshard` changes it.
        """
        if delivery not in ("log", "outbox"):
            raise ConfigError(f"delivery is {delivery!r}; it is 'log' or 'outbox'")
        if source is not None and delivery == "outbox":
            raise ConfigError("delivery='outbox' is for the journal, and not for a source")
        outbox = OutboxDelivery(concurrency, mode, start, inline_seconds, keep_seconds)
        way: Delivery = Log() if delivery == "log" else outbox
        if source is not None:
            way = Foreign(source.intake())
        if isinstance(way, Log) and shards != 1:
            way = Log(shards)

        def register(projection: P) -> P:
            definition = compile_projection(
                projection,
                types=self.events,
                name=name,
                strict=strict,
                poll=poll,
                policy=policy,
                mask=mask,
                delivery=way,
                feed=JOURNAL if source is None else source.feed,
            )
            check_shards(definition, shards)
            self._add(projection, definition)
            if source is not None:
                self._sources[definition.name] = source
                if found := source.sink(definition.name):
                    self.sink(name=f"{definition.name}_dead_letters", policy=found[1])(found[0])
            return projection

        return register if cls is None else register(cls)

    def sink(
        self,
        *,
        name: str | None = None,
        poll: Poll | None = None,
        policy: Policy | None = None,
        mask: Callable[[str], str] | bool = False,
        concurrency: int = 8,
        mode: Mode = "live",
        keep_seconds: float = 0.0,
    ) -> Callable[[type[S]], type[S]]:
        """Registers a Projection class that takes messages, which `app.outbox.send` sends.

        Its handlers are for topics: `@on("orders")`. A message comes as an event whose type is the
        topic and whose stream is the key; messages of one key come in the order in which they were
        sent. Everything else is as with outbox delivery. What a handler writes with `tx` happens
        exactly once, what it does elsewhere at least once: pass `event.id` on.
        """
        outbox = OutboxDelivery(concurrency, mode, keep_seconds=keep_seconds)

        def register(sink: type[S]) -> type[S]:
            definition = compile_projection(
                sink,
                types=self.events,
                name=name,
                strict=True,  # A message that nobody handles is not passed over.
                poll=poll,
                policy=policy,
                mask=mask,
                delivery=outbox,
                feed=MESSAGES,
            )
            self._add(sink, definition)
            return sink

        return register

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the registered projections."""
        return self._catalog.names

    def feed_of(self, projection: str | type) -> str:
        """The name of the feed that a projection reads; on Kafka, of its first partition."""
        return self._catalog.find(projection).feed

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with every signal, on the runner's thread; what it raises is logged."""
        self._signals.listen(guarded(listener))

    def migrate(self) -> int:
        """Creates or updates holdfast's own tables; returns how many migrations ran.

        Outbox projections and sinks are known to the database from then on.
        """
        ran = migrate(self._database)
        self._prepare()
        return ran

    def running(self) -> Running:
        """Runs all projections in threads: `with app.running():` or `async with app.running():`."""
        return Running(self.supervise)

    def supervise(
        self, *, until: int | None = None, part: tuple[int, int] | None = None
    ) -> Supervisor:
        """A supervisor over all projections, not started yet.

        With `part`, n of so many, over every so-manieth that only one process can run, and over all
        those that many can.
        """
        self._refuse_handlers("be run")
        if not self._catalog.names:
            raise ConfigError("the app has no projections; register one with @app.projection")
        self._catalog.check(self.events)
        # A database that is away is the runners' affair: they try again as their Poll says.
        with suppress(StoreUnavailable):
            self._prepare()
        number, of = part or (0, 1)
        own = set(self._alone()[number::of])
        wanted = [d for d in self._catalog if d.name in own or self._is_shared(d)]
        workers = [self._runner(d, until, part) for d in wanted]
        supervisor = Supervisor(workers, wake=self._database.wake.notify)
        self._supervisors.add(supervisor)
        return supervisor

    def most_processes(self) -> int:
        """How many processes there is work for."""
        alone = len(self._alone())
        return alone if alone == len(self._catalog.names) else sys.maxsize

    def _alone(self) -> list[str]:
        """The projections that only one process can run at a time."""
        return [d.name for d in self._catalog if not self._is_shared(d)]

    def _is_shared(self, definition: Definition) -> bool:
        return not isinstance(definition.delivery, Log) or definition.shards > 1

    def catch_up(self, *, timeout_seconds: float | None = None) -> None:
        """Runs every projection to the present head of the journal, and returns.

        Where another process runs a projection, waits for it to get there. Raises
        ProjectionFaulted if one stops, after the others have arrived.
        """
        supervisor = self.supervise(until=self.journal.head())
        supervisor.start()
        arrived = supervisor.join(timeout_seconds)
        if not arrived:
            supervisor.stop()
            supervisor.join(STOP_SECONDS)
        for runner in supervisor.faulted:
            runner.raise_fault()
        if not arrived:
            raise WaitTimeout(f"the projections did not catch up in {timeout_seconds} s")

    def wait_for(
        self,
        projection: str | type,
        position: int,
        *,
        feed: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Returns when the projection has passed `position`.

        Everything up to there is applied then, but for what a policy has skipped or parked. On
        Kafka `feed` names the partition, as in `orders[3]`, and a record's position is its offset
        plus one.
        Raises WaitTimeout when it takes longer, and ProjectionFaulted as soon as it has stopped
        before that position, in whatever process it runs.
        """
        self._refuse_handlers("be waited for")
        definition = self._catalog.find_projection(projection, "be waited for")
        name = definition.name
        if name in self._sources and feed is None:
            raise ConfigError(
                f"projection {name!r} reads several feeds; say which one: feed='topic[partition]'"
            )
        deadline = self._clock.monotonic() + timeout_seconds
        self._prepare()
        while True:
            heard = self._progress.count
            reached, state = self._reached(definition, position, feed)
            if reached >= position:
                return
            if state == "faulted":
                raise ProjectionFaulted(
                    f"projection {name!r} stopped at position {reached}, before {position}; "
                    "holdfast status says why"
                )
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"projection {name!r} is at position {reached} after {timeout_seconds} s, "
                    f"not at {position}; is a worker running?"
                )
            self._progress.wait(heard, min(left, LOOK_SECONDS))

    async def wait_for_async(
        self,
        projection: str | type,
        position: int,
        *,
        feed: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """As `wait_for`, for asyncio."""
        await in_thread(
            self.wait_for, projection, position, feed=feed, timeout_seconds=timeout_seconds
        )

    def status(self) -> list[ProjectionStatus]:
        """How far each projection is, and what is wrong with it.

        Lists what has ever run on this database; a registered projection appears with its first
        run.
        """
        self._prepare()
        return statuses.read_status(self._database, self._clock, self._heads())

    def explain(self, projection: str | type) -> list[Reason]:
        """Why a projection does not advance; the last reason says how much there is to do."""
        definition = self._catalog.find(projection)
        self._prepare()
        heads = self._heads(definition.name)
        return explain(self._database, self._clock, definition.name, definition.feed, heads)

    def tables(self, projection: str | type) -> list[str]:
        """The tables that a projection has made on this database, which a reset would clear."""
        definition = self._catalog.find(projection)
        self._prepare()
        return upkeep.owned_tables(self._database, definition)

    def reset(
        self, projection: str | type, *, by: str | None = None, note: str | None = None
    ) -> list[str]:
        """Clears a projection's tables, checkpoint and queue in one transaction.

        Returns the tables. A worker that runs it now begins again at the first event. With `by`,
        the audit has a row for it.
        """
        self._refuse_handlers("be reset")
        definition = self._catalog.find_projection(projection, "be reset")
        self._prepare()
        change = None if by is None else self._changed(by, note)
        return upkeep.reset(self._database, definition, change)

    def depose(
        self, projection: str | type, *, by: str | None = None, note: str | None = None
    ) -> int:
        """Takes a projection from the process that runs it, frozen or not; returns how many did.

        With `by`, the audit has a row for it.
        """
        refuse_handlers(self._database, "a projection")
        definition = self._catalog.find(projection)
        self._prepare()
        change = None if by is None else self._changed(by, note)
        return upkeep.depose(self._database, definition.name, change)

    def pause(self, projection: str | type, *, by: str, note: str | None = None) -> bool:
        """Stops a projection's work until it is resumed; returns whether it was not paused before.

        When this returns nothing more is committed, in whatever process it runs. It outlives
        restarts.
        """
        definition = self._catalog.find(projection)
        self._prepare()
        return upkeep.pause(self._database, definition, self._changed(by, note))

    def resume(self, projection: str | type, *, by: str, note: str | None = None) -> bool:
        """Lets a paused projection go on; returns whether it was paused."""
        definition = self._catalog.find(projection)
        self._prepare()
        return upkeep.resume(self._database, definition.name, self._changed(by, note))

    def rewind(
        self,
        projection: str | type,
        *,
        by: str,
        to: int | None = None,
        note: str | None = None,
    ) -> int:
        """Goes back to a position, or without one to before the first skipped event.

        Returns the position. Raises ConfigError, with the reason, where events that are applied
        again would not leave the rows as they are.
        """
        definition = self._catalog.find_projection(projection, "be rewound")
        self._prepare()
        return upkeep.rewind(self._database, definition, to, self._changed(by, note))

    def reshard(
        self,
        projection: str | type,
        *,
        by: str,
        shards: int | None = None,
        note: str | None = None,
        timeout_seconds: float | None = None,
    ) -> int:
        """Changes how many shards a projection has, while it runs or not; returns the number.

        Without `shards`, it is what the code says. The present shards go on to the furthest
        position that one of them has reached, and others begin there: nothing is lost, and nothing
        is applied twice. Takes part in that itself. When it ends before (WaitTimeout, or a crash),
        workers finish the change, or the next call does; the former number takes it back.
        """
        self._refuse_handlers("be resharded")
        definition = self._catalog.find_projection(projection, "be resharded")
        shards = definition.shards if shards is None else shards
        check_shards(definition, shards)
        if shards > 1 and definition.shards == 1:
            raise ConfigError(
                f"this code says nothing of shards, so that workers that run it would stop; "
                f"register projection {definition.name!r} with shards={shards} first"
            )
        self._prepare()
        if self._layouts.plan(definition, shards, self._changed(by, note)).next_shards is None:
            return shards
        worker = ShardWorker(definition, self._wiring(definition), self._layouts, changes=True)
        supervisor = Supervisor([worker], wake=self._database.wake.notify)
        self._supervisors.add(supervisor)
        supervisor.start()
        is_done = supervisor.join(timeout_seconds)
        if not is_done:
            supervisor.stop()
            supervisor.join(STOP_SECONDS)
        if self._layouts.layout(definition.name) == ShardLayout(shards):
            return shards
        name, now = definition.name, self._layouts.layout(definition.name)
        back = f"holdfast reshard {name} --to {now.shards} takes it back"
        if worker.fault is not None:
            raise ProjectionFaulted(
                f"{fault_message(name, worker.fault)}; the change to {shards} shards waits for "
                f"that shard, and goes on when it does; {back}"
            ) from worker.fault.error
        if shards not in (now.shards, now.next_shards):
            raise HoldfastError(
                f"somebody else has changed projection {name!r} to "
                f"{now.next_shards or now.shards} shards meanwhile"
            )
        raise WaitTimeout(
            f"projection {name!r} is not in {shards} shards after {timeout_seconds} s; whoever "
            f"runs it goes on with that, and so does the same command; {back}"
        )

    def forward(
        self, projection: str | type, to: int, *, feed: str, by: str, note: str | None = None
    ) -> None:
        """Goes on from a later position of a partition; what is before it is never applied.

        For records that are gone, such as by retention. Streams that miss some of their versions
        then come to a gap.
        """
        definition = self._catalog.find(projection)
        self._prepare()
        source = self._sources.get(definition.name)
        if source is not None and to > (head := source.heads().get(feed, 0)):
            raise ConfigError(f"{feed} ends at offset {head}, so nothing is gone up to {to}")
        upkeep.forward(self._database, definition, feed, to, self._changed(by, note))

    def audit(self, projection: str | type | None = None, *, limit: int = 100) -> list[AuditRow]:
        """What people have changed, the latest first: who, when, what and why."""
        name = None if projection is None else self._catalog.find(projection).name
        self._prepare()
        return read_audit(self._database, name, limit)

    def close(self) -> None:
        """Closes all connections. Stop what runs first."""
        self._inline.close(STOP_SECONDS)
        self._head_reader.close()
        self._database.close()

    def _wiring(self, definition: Definition) -> RunnerContext:
        def open_source(session: object) -> Source:
            assert isinstance(session, SqlSession)
            shares = len(self._catalog.names) > 1 or definition.shards > 1
            return JournalSource(session, self._head_reader, shares=shares)

        return RunnerContext(
            feed=definition.feed,
            open_session=self._open_session,
            open_source=open_source,
            leases=SqlLeases(self._database, self._head_reader),
            types=self.events,
            clock=self._clock,
            signals=self._signals,
            limits=self._limits,
        )

    def _runner(
        self, definition: Definition, until: int | None, part: tuple[int, int] | None
    ) -> Worker:
        context = self._wiring(definition)
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

        return Relay(definition, self._wiring(definition), open_claims=open_claims, until=until)

    def _replay(self, item: QueueItem) -> None:
        definition = self._catalog.find(item.projection)
        self._refuse_handlers("replay items")
        relay = self._relay(definition)
        relay.prepare()
        with closing(self._open_session()) as session, closing(Invoker()) as invoker:
            replay(relay, item, session, invoker)

    def _new_inline(self) -> Inline:
        return Inline(self._relay, self._open_session, wake=self._database.announce)

    def _apply_inline(self, stream: str, types: Sequence[str]) -> frozenset[str]:
        return self._inline.apply(self._catalog, stream, types)

    def _add(self, cls: type, definition: Definition) -> None:
        self._catalog.add(cls, definition)
        if isinstance(definition.delivery, OutboxDelivery):
            self._prepared = False  # The next one who needs the database registers it there.

    def _refuse_handlers(self, what: str) -> None:
        is_handling = handled_database.get() is self._database
        if is_handling or any(supervisor.runs_this for supervisor in self._supervisors):
            raise HoldfastError(f"projections can't {what} from inside a handler of the same app")

    def _changed(self, by: str, note: str | None) -> ChangedBy:
        refuse_handlers(self._database, "a projection")
        return ChangedBy(by, self._clock.now(), note)

    def _lane_of(self, projection: str, event: RawEvent) -> str:
        return lane_of(self._catalog.find(projection), self.events, event)

    def _open_session(self) -> SqlSession:
        self._prepare()
        return SqlSession(self._database)

    def _heads(self, projection: str | None = None) -> dict[tuple[str, str], int]:
        """Where the feeds of foreign sources end, as far as that can be had."""
        found: dict[tuple[str, str], int] = {}
        for name, source in self._sources.items():
            if projection in (None, name):
                with suppress(HoldfastError):
                    found |= {(name, feed): head for feed, head in source.heads().items()}
        return found

    def _reached(self, definition: Definition, position: int, feed: str | None) -> tuple[int, str]:
        found = upkeep.read_positions(self._database, definition, feed)
        reached = min(at for at, _ in found)
        is_faulted = any(state == "faulted" for at, state in found if at < position)
        state = "faulted" if is_faulted else "stopped"
        if isinstance(definition.delivery, OutboxDelivery):
            left = first_left(self._database, definition.name, JOURNAL, position)
            reached = position if left is None else left - 1
        return reached, state

    def _on_signal(self, signal: Signal) -> None:
        if isinstance(signal, Committed | Faulted):
            self._progress.notify()

    def _prepare(self) -> None:
        if self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                if self._auto_migrate:
                    migrate(self._database)
                else:
                    check_migrated(self._database)
                for definition in self._catalog:
                    if isinstance(definition.delivery, OutboxDelivery):
                        register(self._database, definition)
                self._prepared = True

    def _check_prepared(self) -> None:
        """Where somebody's transaction is open, a migration could wait for it for ever."""
        if not (self._prepared or self._migrated):
            check_migrated(self._database)
            self._migrated = True

    def _forked(self) -> None:
        """Called in the child of a fork, where the app goes on with connections of its own."""
        self._preparing = threading.Lock()
        self._progress = WakeSignal()
        self._inline = self._new_inline()
        self._head_reader = HeadReader(self._database)


def _open(url: Any) -> Database:
    if isinstance(url, SqliteUrl):
        return SqliteDatabase(url.path)
    from holdfast.sql.postgres.database import PostgresDatabase

    return PostgresDatabase(url)
