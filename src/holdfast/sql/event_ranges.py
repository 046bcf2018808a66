"""Ranges of the journal: how far they go, without their events."""

from __future__ import annotations

from holdfast.runtime.store.ranges import EventRange
from holdfast.sql.database import Connection


def next_events(connection: Connection, after: int, limit: int) -> EventRange:
    """The range of the next events, settled or not."""
    return _found(connection, "next_range", after, limit=limit)


def between(connection: Connection, after: int, through: int) -> EventRange:
    """The range between two positions."""
    return _found(connection, "range_between", after, through=through)


def _found(connection: Connection, query: str, after: int, **limits: int) -> EventRange:
    ((events, through, event_id, event_type),) = connection.run(query, {"after": after, **limits})
    if not events:
        return EventRange(after, after, 0, None)
    return EventRange(after, through, events, (str(event_id), event_type))
