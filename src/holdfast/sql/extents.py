"""Stretches of the journal: how far they go, without their events."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.sets import Extent
from holdfast.sql.database import Connection
from holdfast.sql.settled import settled_rows
from holdfast.sql.values import uuid


def next_events(connection: Connection, after: int, limit: int) -> Extent:
    """The next events, settled or not."""
    return _found(connection, "extent", after, limit=limit)


def between(connection: Connection, after: int, through: int) -> Extent:
    """What is there between two positions."""
    return _found(connection, "stretch", after, through=through)


def next_settled(connection: Connection, after: int, limit: int) -> Extent:
    """The next events on PostgreSQL, as far as nothing smaller can appear later; see settled.py."""
    extent = next_events(connection, after, limit)
    if extent.through == after + extent.events:
        return extent
    rows, held = settled_rows(
        after,
        read=lambda: connection.run("positions", {"after": after, "limit": limit}),
        drawn=lambda: int(connection.run("last_drawn")[0][0]),
        bound=lambda: connection.run("in_flight")[0][0],
    )
    if not rows:
        return Extent(after, after, 0, None, held)
    return replace(between(connection, after, int(rows[-1][0])), held=held)


def _found(connection: Connection, query: str, after: int, **limits: int) -> Extent:
    ((events, through, event_id, event_type),) = connection.run(query, {"after": after, **limits})
    if not events:
        return Extent(after, after, 0, None)
    id_ = uuid(event_id)
    assert id_ is not None
    return Extent(after, through, events, (id_, event_type))
