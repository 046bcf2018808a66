"""Given events, when projected: a real journal and a real runner, on SQLite in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, overload

import msgspec

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.definition import Fold
from holdfast.model.event import NewEvent, RawEvent
from holdfast.model.event_types import VERSION_KEY, EventTypes
from holdfast.model.policy import Policy
from holdfast.model.projection import Projection, TableProjection
from holdfast.sql.journal.encode import new_id
from holdfast.sql.journal.journal import append_steps, drive
from holdfast.testing.clock import FixedClock
from holdfast.testing.tables import Rows, Tables, read_table

R = TypeVar("R")

MOST_ITEMS = 10_000
"""Maximum of queue items that a test sees."""


def given(*events: tuple[str, Any], clock: FixedClock | None = None) -> Given:
    """Events that have happened, in this order, each with the name of its stream.

    An event is what `journal.append` takes: an instance of an event class, or a NewEvent. To test
    an upcaster, give an event in its stored form, with its version:
    `NewEvent({…}, type="FundsCredited", metadata={"schema_version": 1})`.
    """
    return Given((), clock or FixedClock()).later(0, *events)


@dataclass(frozen=True, slots=True)
class _Step:
    """Events that are recorded `after_seconds` after those of the step before."""

    after_seconds: float
    events: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """Events to project. They can be projected any number of times."""

    _steps: tuple[_Step, ...]
    _clock: FixedClock

    def later(self, after_seconds: float, *events: tuple[str, Any]) -> Given:
        """Adds events that are recorded `after_seconds` after the ones before."""
        for item in events:
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
                raise TypeError(f'given takes pairs such as ("account-1", event), not {item!r}')
        return Given((*self._steps, _Step(after_seconds, events)), self._clock)

    @overload
    def when(
        self,
        projection: type[TableProjection[R]],
        *,
        name: str | None = None,
        strict: bool = False,
        events: EventTypes | None = None,
        policy: Policy | None = None,
    ) -> Rows[R]: ...

    @overload
    def when(
        self,
        projection: type[Projection],
        *,
        name: str | None = None,
        strict: bool = False,
        events: EventTypes | None = None,
        policy: Policy | None = None,
    ) -> Tables: ...

    def when(
        self,
        projection: type[TableProjection[Any]] | type[Projection],
        *,
        name: str | None = None,
        strict: bool = False,
        events: EventTypes | None = None,
        policy: Policy | None = None,
    ) -> Rows[Any] | Tables:
        """Projects the events, and returns the rows of the projection.

        `name`, `strict` and `policy` are those of `app.projection`. Pauses between attempts pass at
        once, and `queue` of the result has what the policy has parked or skipped. Give
        `events=app.events` if the app registers event types under other names, or with upcasters.
        Raises the error of a handler that stops the projection, with a note that names the event.
        """
        clock = FixedClock(self._clock.now())
        with App("sqlite:///:memory:", clock=clock, events=events) as app:
            app.projection(name=name, strict=strict, policy=policy)(projection)
            for step in self._steps:
                clock.advance(step.after_seconds)
                for stream, event in step.events:
                    _append(app, stream, event)
            _catch_up(app)
            definition = app._catalog.find(projection)
            read = {
                table: read_table(app, table, declared)
                for table, declared in definition.tables.items()
            }
            queue = app.queue.list(limit=MOST_ITEMS)
            if not isinstance(definition.kind, Fold):
                return Tables(definition.name, read, queue)
            table = definition.kind.table
            return Rows(table, read[table.name], queue)


def _append(app: App, stream: str, event: Any) -> None:
    """Appends an event; one that names its version is stored as it is, not as the latest."""
    if not (isinstance(event, NewEvent) and VERSION_KEY in (event.metadata or {})):
        app.journal.append(stream, [event])
        return
    now = app.journal.records.clock.now()
    stored = RawEvent(
        position=0,
        stream=stream,
        version=0,
        id_text=str(event.id or new_id(now)),
        type=event.type or "",
        data=msgspec.json.encode(event.data).decode(),
        metadata=msgspec.json.encode(event.metadata).decode(),
        recorded_at=now,
    )
    record = app.journal.records.raw(stored)
    with app.journal.transaction() as run:
        drive(append_steps(stream, [record], None), run)


def _catch_up(app: App) -> None:
    try:
        app.catch_up()
        return
    except ProjectionFaulted as fault:
        faulted = fault
    error = faulted.__cause__
    if not isinstance(error, Exception):  # SystemExit or KeyboardInterrupt would end the tests.
        raise faulted
    error.add_note(str(faulted))
    raise error
