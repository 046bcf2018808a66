"""App: registers projections, appends events, runs, and waits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, Self, TypeVar, Unpack, assert_never, overload

from holdfast.catalog import (
    ProjectionSettings,
    SinkSettings,
    definition_of,
    delivery_of,
    sink_definition_of,
)
from holdfast.errors import ConfigError, ProjectionFaulted, StoreUnavailable, WaitTimeout
from holdfast.logs import guarded
from holdfast.model import arguments
from holdfast.model.definition import Definition, Foreign, Log
from holdfast.model.definition import Outbox as OutboxDelivery
from holdfast.model.event import check_stream
from holdfast.model.event_types import EventTypes
from holdfast.model.feed_names import JOURNAL
from holdfast.model.projection import Projection, TableProjection
from holdfast.operations import Operations
from holdfast.running import STOP_SECONDS, Running
from holdfast.runtime.run.supervisor import Supervisor
from holdfast.runtime.signals import Listener
from holdfast.runtime.store.clock import Clock
from holdfast.sql.journal.encode import EventEncoder
from holdfast.sql.journal.journal import Journal
from holdfast.sql.operate import lifecycle
from holdfast.sql.operate.outbox import Outbox
from holdfast.sql.operate.queue import Queue
from holdfast.sql.outbox.registration import first_left
from holdfast.threads import in_thread

S = TypeVar("S", bound=Projection)
P = TypeVar("P", bound=type[Projection] | type[TableProjection[Any]])

WAIT_SECONDS = 0.05
"""Interval at which `wait_for` checks the progress of other processes."""


class App(Operations):
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
        arguments.whole("max_payload_bytes", max_payload_bytes, least=1)
        if type(auto_migrate) is not bool:
            raise ConfigError(f"auto_migrate is {auto_migrate!r}; it is True or False")
        if events is not None and not isinstance(events, EventTypes):
            raise ConfigError(f"events is {events!r}; it is an EventTypes, or None")
        super().__init__(url, auto_migrate=auto_migrate, clock=clock, events=events)
        records = EventEncoder(self.events, self._clock, max_payload_bytes=max_payload_bytes)
        self.journal = Journal(
            self._database,
            types=self.events,
            records=records,
            prepare=self._prepare,
            check_prepared=self._check_prepared,
            has_tables=self.has_tables,
            apply_inline=self._apply_inline,
        )
        self.queue = Queue(
            self._database,
            clock=self._clock,
            prepare=self._prepare,
            has_tables=self.has_tables,
            lane_of=self._lane_of,
            source_of=self._sources.get,
        )
        self.outbox = Outbox(
            self._database,
            self.queue,
            records=records,
            prepare=self._prepare,
            check_prepared=self._check_prepared,
            has_tables=self.has_tables,
            replay=self._replay,
            statuses=self.status,
        )

    def __repr__(self) -> str:
        return f"App({str(self.url)!r}, projections={list(self._catalog.names)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Registration

    @overload
    def projection(self, cls: P) -> P: ...

    @overload
    def projection(self, **settings: Unpack[ProjectionSettings]) -> Callable[[P], P]: ...

    def projection(
        self, cls: P | None = None, **settings: Unpack[ProjectionSettings]
    ) -> P | Callable[[P], P]:
        """Registers a projection class; usable as `@app.projection` or with settings.

        `name` defaults to the class name in snake case. `strict` makes an event type without a
        handler a fault, instead of passing it over. `policy` says what follows when an event fails,
        `poll` how the feed is read. `mask` keeps the text of errors out of the logs: True hides it,
        a function changes it. `source` says where the events come from, if not from the journal: a
        `holdfast.kafka.KafkaSource`. `start` says where a new projection begins on a journal that
        has events: at the "start", with those that come from "now" on, after a position, or at a
        time.

        `delivery="outbox"` applies events from the queue, where every append puts them: up to
        `concurrency` lanes at once in each process, for handlers that are slow. The other settings
        are for that: in `mode` "off" the queue fills and nobody works. With `inline_seconds`, an
        append waits up to that long for its events to be applied at once, in its own process, and
        says whether they were. What is done leaves the queue, after `keep_seconds`.

        With `shards`, that many runners share the streams, in as many processes as there are: for a
        projection that one processor can't keep up with. It is what a projection begins with; the
        database keeps the number, and `reshard` changes it.
        """
        delivery = delivery_of(settings)  # Wrong settings are refused before there is a class.

        def register(projection: P) -> P:
            definition = definition_of(projection, self.events, delivery, settings)
            self._add(projection, definition)
            source = settings.get("source")
            if source is not None:
                self._sources[definition.name] = source
                if found := source.sink(definition.name):
                    self.sink(name=f"{definition.name}_dead_letters", policy=found[1])(found[0])
            return projection

        return register if cls is None else register(cls)

    @overload
    def sink(self, cls: type[S]) -> type[S]: ...

    @overload
    def sink(self, **settings: Unpack[SinkSettings]) -> Callable[[type[S]], type[S]]: ...

    def sink(
        self, cls: type[S] | None = None, **settings: Unpack[SinkSettings]
    ) -> type[S] | Callable[[type[S]], type[S]]:
        """Registers a Projection class that takes messages, which `app.outbox.send` sends.

        Usable as `@app.sink` or with settings.

        Its handlers are for topics: `@on("orders")`. A message comes as an event whose type is the
        topic and whose stream is the key; messages of one key come in the order in which they were
        sent. Everything else is as with outbox delivery. What a handler writes with `tx` happens
        exactly once, what it does elsewhere at least once: pass `event.id` on.
        """

        def register(sink: type[S]) -> type[S]:
            self._add(sink, sink_definition_of(sink, self.events, settings))
            return sink

        return register if cls is None else register(cls)

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the registered projections."""
        return self._catalog.names

    def feed_of(self, projection: str | type) -> str:
        """The name of the feed that a projection reads; on Kafka, of its first partition."""
        return self._catalog.find(projection).feed

    def delivery_of(self, projection: str | type) -> Literal["log", "outbox", "source"]:
        """How events come to a projection, as the code says it."""
        match self._catalog.find(projection).delivery:
            case Log():
                return "log"
            case OutboxDelivery():
                return "outbox"
            case Foreign():
                return "source"

    def _add(self, cls: type, definition: Definition) -> None:
        self._catalog.add(cls, definition)
        if isinstance(definition.delivery, OutboxDelivery):
            self._prepared = False  # The next one who needs the database registers it there.

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with every signal, on the runner's thread; what it raises is logged."""
        if not callable(listener):
            raise ConfigError(f"a listener is a function, not {listener!r}")
        self._signals.listen(guarded(listener))

    # Running

    def running(self) -> Running:
        """Runs all projections in threads: `with app.running():` or `async with app.running():`."""
        return Running(self.supervise)

    def supervise(
        self, *, until: int | None = None, part: tuple[int, int] | None = None
    ) -> Supervisor:
        """A supervisor over all projections, not started yet.

        With `part=(i, n)`, process i of n gets every n-th projection that only one process can run,
        and all those that many can.
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
        workers = [self._worker(d, until, part) for d in wanted]
        if until is not None:
            return self._supervise(workers)
        return self._supervise(workers, renewed=lambda w: self._worker(w.definition, None, part))

    def most_processes(self) -> int:
        """How many processes there is work for, as far as that can be known."""
        return max(1, sum(self._most_processes(definition) for definition in self._catalog))

    def _most_processes(self, definition: Definition) -> int:
        """One for each runner of a projection: for each shard, or each partition."""
        match definition.delivery:
            case Log(shards=1):
                return 1
            case Log(shards=shards):
                with suppress(StoreUnavailable):
                    self._prepare()
                    if (layout := self._layouts.find(definition.name)) is not None:
                        return max(layout.shards, layout.next_shards or 0)
                return shards
            case Foreign():
                with suppress(StoreUnavailable):
                    return len(self._sources[definition.name].heads())
                return sys.maxsize
            case OutboxDelivery():
                return sys.maxsize  # Any number of processes share its lanes.
            case _:
                assert_never(definition.delivery)

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
        if timeout_seconds is not None:
            arguments.seconds("timeout_seconds", timeout_seconds)
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

    # Waiting

    def wait_for(
        self,
        projection: str | type,
        position: int | None = None,
        *,
        stream: str | None = None,
        feed: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Returns when the projection has passed `position`, or the present end of a `stream`.

        Everything up to there is applied then, but for what a policy has skipped or parked. With
        `stream`, only the events of that stream count, wherever they can be told from others: in
        the shard that has them, or in an outbox. On Kafka `feed` names the partition, as in
        `orders[3]`, and a record's position is its offset plus one.
        Raises WaitTimeout when it takes longer, and ProjectionFaulted as soon as it has stopped
        before that position, in whatever process it runs, or comes from an earlier journal.
        """
        self._refuse_handlers("be waited for")
        definition = self._catalog.find_projection(projection, "be waited for")
        name, is_foreign = definition.name, definition.name in self._sources
        if (position is None) == (stream is None) or (stream is not None and is_foreign):
            raise ConfigError("wait_for takes a position, or else a stream of the journal")
        if is_foreign and feed is None:
            raise ConfigError(
                f"projection {name!r} reads several feeds; say which one: feed='topic[partition]'"
            )
        arguments.whole_or_none("position", position)
        arguments.text_or_none("feed", feed)
        arguments.seconds("timeout_seconds", timeout_seconds)
        deadline = self._clock.monotonic() + timeout_seconds
        self._prepare()
        if stream is not None:
            position = lifecycle.stream_end(self._database, check_stream(stream))
        if position is None:
            return  # The stream has no event.
        while True:
            heard = self._progress.count
            reached, is_faulted = self._reached(definition, position, feed, stream)
            if reached >= position:
                return
            if is_faulted and not self._is_tried_here(definition):
                raise ProjectionFaulted(
                    f"projection {name!r} stopped at position {reached}, before {position}; "
                    f"holdfast status {name} says why"
                )
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"projection {name!r} is at position {reached} after {timeout_seconds} s, "
                    f"not at {position}; is a worker running?"
                )
            self._progress.wait(heard, min(left, WAIT_SECONDS))

    async def wait_for_async(
        self,
        projection: str | type,
        position: int | None = None,
        *,
        stream: str | None = None,
        feed: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """As `wait_for`, for asyncio."""
        await in_thread(
            self.wait_for,
            projection,
            position,
            stream=stream,
            feed=feed,
            timeout_seconds=timeout_seconds,
        )

    def _reached(
        self, definition: Definition, position: int, feed: str | None, stream: str | None
    ) -> tuple[int, bool]:
        """How far a projection is, and whether it has stopped before a position."""
        found = lifecycle.read_positions(self._database, definition, feed, stream)
        if isinstance(definition.delivery, OutboxDelivery):
            left = first_left(self._database, definition.name, JOURNAL, position, stream)
            reached = position if left is None else left - 1
            return reached, any(state == "faulted" for _, state in found)
        is_faulted = any(state == "faulted" for at, state in found if at < position)
        return min(at for at, _ in found), is_faulted

    def _is_tried_here(self, definition: Definition) -> bool:
        """Whether a worker of this process has not faulted: then a stored fault is an older one."""
        workers = [worker for supervisor in self._supervisors for worker in supervisor.running]
        return any(w.definition is definition and w.fault is None for w in workers)
