"""What the contracts append and project: the smallest events and tables that show something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import new_class
from typing import Any, TypeVar
from uuid import UUID

from holdfast.app import App
from holdfast.model.compile_projection import compile_projection
from holdfast.model.definition import Definition
from holdfast.model.event import Event, NewEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.projection import Projection, TableProjection, on
from holdfast.runtime.status import ProjectionStatus

T = TypeVar("T")

WAIT_SECONDS = 30.0
"""Long enough for any machine; reached only by a failing test."""


@dataclass
class Counted:
    """An event that carries a number."""

    n: int


@dataclass
class Sum:
    """A row whose number shows an event that is applied twice."""

    stream: str
    total: int = 0


class Sums(TableProjection[Sum]):
    """The sum of the numbers of each stream."""

    @on(Counted)
    def counted(self, row: Sum, event: Event[Counted]) -> None:
        row.total += event.data.n


SUMS = "SELECT stream, total FROM sums ORDER BY stream"


def counted(n: int, *, id: UUID | None = None) -> NewEvent:
    """The same event as a dict with a type name."""
    return NewEvent({"n": n}, type="Counted", id=id)


def concurrently(count: int, function: Callable[[int], T]) -> list[T]:
    """Calls `function(0)`, `function(1)`… at the same time; returns their results in order."""
    start = threading.Barrier(count)

    def run(number: int) -> T:
        start.wait(WAIT_SECONDS)
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def table_definition(
    row_type: type, *, name: str = "things", key_fields: tuple[str, ...] = ()
) -> Definition:
    """The definition of a TableProjection with this row type, whose handler does nothing."""

    def key(_self: object, _event: object) -> None:
        return None

    def handle(_self: object, _row: object, _event: object) -> None:
        return None

    body: dict[str, Any] = {"key_fields": key_fields, "key": key, "handle": on("*")(handle)}
    base: Any = TableProjection[row_type]  # type: ignore[valid-type]
    return compile_projection(
        new_class("Things", (base,), exec_body=lambda namespace: namespace.update(body)),
        types=EventTypes(),
        name=name,
    )


def handler_definition(tables: dict[str, str | type], *, name: str = "things") -> Definition:
    """The definition of a Projection that declares these tables, whose handler does nothing."""
    declared = tables

    class Things(Projection):
        tables = declared

        @on("*")
        def handle(self, _event: object, _tx: object) -> None:
            return None

    return compile_projection(Things, types=EventTypes(), name=name)


def fetch(app: App, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query, as anybody else who reads the database gets them."""
    with app._database.reading() as connection:
        return connection.tx.fetch(sql)


def eventually(condition: Callable[[], bool]) -> None:
    """Returns when a condition of the database holds that nothing announces."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def execute(app: App, sql: str) -> None:
    """Runs a statement on the database, as an operator might."""
    with app._database.writing() as connection:
        connection.tx.execute(sql)


def status_of(app: App, name: str) -> ProjectionStatus:
    """One projection's status; of one in shards, that of the worst, with the sums of all."""
    found = [status for status in app.status() if status.projection == name]
    worst = min(found, key=lambda status: (status.state != "faulted", status.position))
    latest = max(found, key=lambda status: (status.last_event_id is not None, status.epoch))
    return replace(
        worst,
        events_processed=sum(status.events_processed for status in found),
        closed_lanes=sum(status.closed_lanes for status in found),
        queued_events=sum(status.queued_events for status in found),
        last_event_id=latest.last_event_id,
        last_event_type=latest.last_event_type,
        waiting_until=max((s.waiting_until for s in found if s.waiting_until), default=None),
        waiting_for=next((s.waiting_for for s in found if s.waiting_for), None),
    )
