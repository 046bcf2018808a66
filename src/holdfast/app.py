"""App: one database, its journal and its projections, put together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from holdfast.clock import SystemClock
from holdfast.core.codec import EventTypes
from holdfast.core.errors import ConfigError, ProjectionFaulted, StoreUnavailable, WaitTimeout
from holdfast.core.policy import Poll
from holdfast.core.ports import Clock, Source
from holdfast.core.projection import Definition, Projection, TableProjection, compile_projection
from holdfast.core.runner import Runner, Wiring
from holdfast.core.signals import Bell, Committed, Faulted, Listener, Signal, Signals
from holdfast.core.status import ProjectionStatus
from holdfast.core.supervisor import Supervisor
from holdfast.logs import guarded, log_signal
from holdfast.sql import store
from holdfast.sql.database import Database
from holdfast.sql.journal import Journal
from holdfast.sql.migrations import check_migrated, migrate
from holdfast.sql.sqlite import SqliteDatabase
from holdfast.sql.store import JournalSource, SqlLeases, SqlSession
from holdfast.sql.url import SqliteUrl, parse_url

P = TypeVar("P", bound=type[Projection] | type[TableProjection[Any]])

FEED = "journal"
"""The journal's name as a feed."""

STOP_SECONDS = 30.0
"""How long a stop waits for handlers to return. What they had begun is not committed then."""

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
        self._definitions: dict[str, Definition] = {}
        self._classes: dict[type, str] = {}
        self._database: Database = _open(self.url)
        self._signals = Signals()
        self._signals.listen(log_signal)
        self._signals.listen(self._on_signal)
        self._prepared = False
        self._preparing = threading.Lock()
        self._progress = Bell()
        self.journal = Journal(
            self._database,
            types=self.events,
            clock=self._clock,
            max_payload_bytes=max_payload_bytes,
            prepare=self._prepare,
            check_prepared=self._check_prepared,
        )

    def __repr__(self) -> str:
        return f"App({str(self.url)!r}, projections={list(self._definitions)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @overload
    def projection(self, cls: P) -> P: ...

    @overload
    def projection(
        self, *, name: str | None = None, strict: bool = False, poll: Poll | None = None
    ) -> Callable[[P], P]: ...

    def projection(
        self,
        cls: P | None = None,
        *,
        name: str | None = None,
        strict: bool = False,
        poll: Poll | None = None,
    ) -> P | Callable[[P], P]:
        """Registers a projection class; usable as `@app.projection` or with settings.

        `name` defaults to the class name in snake case. `strict` makes an event type without a
        handler a fault, instead of passing it over.
        """

        def register(projection: P) -> P:
            definition = compile_projection(
                projection, types=self.events, name=name, strict=strict, poll=poll
            )
            self._add(projection, definition)
            return projection

        return register if cls is None else register(cls)

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the registered projections."""
        return tuple(self._definitions)

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with every signal, on the runner's thread; what it raises is logged."""
        self._signals.listen(guarded(listener))

    def migrate(self) -> int:
        """Creates or updates holdfast's own tables; returns how many migrations ran."""
        return migrate(self._database)

    def running(self) -> Running:
        """Runs all projections in threads: `with app.running():` or `async with app.running():`."""
        return Running(self)

    def supervise(self, *, until: int | None = None) -> Supervisor:
        """A supervisor over all projections, not started yet."""
        if not self._definitions:
            raise ConfigError("the app has no projections; register one with @app.projection")
        self.events.check()
        # A database that is away is the runners' affair: they try again as their Poll says.
        with suppress(StoreUnavailable):
            self._prepare()
        wiring = Wiring(
            feed=FEED,
            open_session=self._open_session,
            open_source=self._open_source,
            leases=SqlLeases(self._database),
            types=self.events,
            clock=self._clock,
            signals=self._signals,
        )
        runners = [Runner(d, wiring, until=until) for d in self._definitions.values()]
        return Supervisor(runners, wake=self._database.bell.ring)

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
        timeout_seconds: float = 10.0,
    ) -> None:
        """Returns when the projection has applied everything up to `position`.

        Raises WaitTimeout when it takes longer, and ProjectionFaulted as soon as it has stopped
        before that position, in whatever process it runs.
        """
        name = self._definition(projection).name
        deadline = self._clock.monotonic() + timeout_seconds
        self._prepare()
        while True:
            heard = self._progress.rings
            reached, state = self._reached(name)
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
        timeout_seconds: float = 10.0,
    ) -> None:
        """As `wait_for`, for asyncio."""
        await asyncio.to_thread(
            self.wait_for, projection, position, timeout_seconds=timeout_seconds
        )

    def status(self) -> list[ProjectionStatus]:
        """How far each projection is, and what is wrong with it.

        Lists what has ever run on this database; a registered projection appears with its first
        run.
        """
        self._prepare()
        return store.read_status(self._database, self._clock)

    def tables(self, projection: str | type) -> list[str]:
        """The tables that a projection has made on this database, which a reset would clear."""
        definition = self._definition(projection)
        self._prepare()
        return store.owned_tables(self._database, definition)

    def reset(self, projection: str | type) -> list[str]:
        """Clears a projection's tables and checkpoint in one transaction; returns the tables.

        A worker that runs it now begins again at the first event.
        """
        definition = self._definition(projection)
        self._prepare()
        return store.reset(self._database, definition)

    def depose(self, projection: str | type) -> int:
        """Takes a projection from the process that runs it, frozen or not; returns how many did."""
        definition = self._definition(projection)
        self._prepare()
        return store.depose(self._database, definition.name)

    def close(self) -> None:
        """Closes all connections. Stop what runs first."""
        self._database.close()

    def _add(self, cls: type, definition: Definition) -> None:
        if definition.name in self._definitions:
            raise ConfigError(
                f"two projections are named {definition.name!r}; "
                "give one another name: @app.projection(name=…)"
            )
        for other in self._definitions.values():
            for table in definition.tables.keys() & other.tables.keys():
                raise ConfigError(
                    f"projections {other.name!r} and {definition.name!r} both declare table "
                    f"{table!r}; a table belongs to one projection"
                )
        self._definitions[definition.name] = definition
        self._classes[cls] = definition.name

    def _definition(self, projection: str | type) -> Definition:
        name = self._classes.get(projection) if isinstance(projection, type) else projection
        if name is None or name not in self._definitions:
            known = ", ".join(self._definitions) or "none"
            raise ConfigError(f"there is no projection {projection!r}; the app has: {known}")
        return self._definitions[name]

    def _open_session(self) -> SqlSession:
        self._prepare()
        return SqlSession(self._database)

    def _open_source(self, session: object) -> Source:
        assert isinstance(session, SqlSession)
        return JournalSource(session)

    def _reached(self, name: str) -> tuple[int, str]:
        found = store.read_positions(self._database, name)
        return min(found, default=(0, "stopped"))

    def _on_signal(self, signal: Signal) -> None:
        if isinstance(signal, Committed | Faulted):
            self._progress.ring()

    def _prepare(self) -> None:
        if self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                if self._auto_migrate:
                    migrate(self._database)
                else:
                    check_migrated(self._database)
                self._prepared = True

    def _check_prepared(self) -> None:
        """Where somebody's transaction is open, a migration could wait for it for ever."""
        if not self._prepared:
            check_migrated(self._database)
            self._prepared = True


class Running:
    """The projections of an app, running in threads between enter and exit."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._supervisor: Supervisor | None = None

    @property
    def faulted(self) -> dict[str, str]:
        """The projections that have stopped, each with its error."""
        if self._supervisor is None:
            return {}
        found = {}
        for runner in self._supervisor.faulted:
            assert runner.fault is not None
            found[runner.definition.name] = (
                f"{runner.fault.error_type}: {runner.fault.error_message}"
            )
        return found

    def __enter__(self) -> Self:
        self._supervisor = self._app.supervise()
        self._supervisor.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._supervisor is not None
        self._supervisor.stop()
        self._supervisor.join(STOP_SECONDS)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, exc_type, exc, traceback)


def _open(url: Any) -> Database:
    if isinstance(url, SqliteUrl):
        return SqliteDatabase(url.path)
    from holdfast.sql.postgres import PostgresDatabase

    return PostgresDatabase(url)
