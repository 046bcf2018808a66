"""Lag: the age of the oldest event that holdfast itself still has to apply.

It may not be reached yet, be tried again, or be due in the queue. An event that no handler takes is
no lag. What waits for a person, a dead event and those behind it, is stuck: that is another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.definition import Definition, Log, Outbox
from holdfast.model.feed_names import is_journal, shard_feed, shard_feeds, shard_of, shards_in
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.sql.database import Connection, Database
from holdfast.sql.values import moment

CHUNK_EVENTS = 500
"""Maximum of events that are looked at together."""

LOOKED_EVENTS = 10_000
"""Maximum of events that are looked at for the first one that a handler takes.

If there is none among them, the last one counts: the lag is a little too large.
"""

Takes = Callable[[str], bool]
"""Whether a projection applies events of a type."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How much of some event types a projection still has to apply, and what is stuck of them.

    `seconds` and `stuck_seconds` are the ages of the oldest ones.
    """

    events: int
    seconds: float
    stuck_events: int
    stuck_seconds: float


def takes_of(definition: Definition) -> Takes:
    """The types that a projection applies; a strict one stops at the others, and must not."""
    return lambda event_type: definition.strict or definition.handles(event_type)


def first_unreached(
    connection: Connection, feed: str, after: int, takes: Takes, *, through: int | None = None
) -> datetime | None:
    """When the oldest event was recorded that a projection has not come to and will apply."""
    events = _unreached(connection, feed, after)
    for looked, (position, event_type, recorded_at) in enumerate(events):
        if through is not None and position > through:
            return None
        if takes(event_type) or looked >= LOOKED_EVENTS:
            return recorded_at
    return None


def age(now: datetime, since: datetime | None) -> float:
    """Seconds since a time; 0 if there is none."""
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def read_lag(
    database: Database, clock: Clock, definition: Definition, takes: Takes | None = None
) -> Lag:
    """The lag of a projection, or only of the types that `takes` names, all counted."""
    own = takes_of(definition)
    wanted = own if takes is None else lambda event_type: own(event_type) and takes(event_type)
    counts = {False: 0, True: 0}
    oldest: dict[bool, datetime | None] = {False: None, True: None}

    def add(is_stuck: bool, events: int, since: datetime | None) -> None:
        counts[is_stuck] += events
        known = oldest[is_stuck]
        oldest[is_stuck] = since if known is None or (since and since < known) else known

    with database.reading() as connection:
        for feed in _feeds(connection, definition):
            names = {"projection": definition.name, "feed": feed}
            rows = connection.run("read_checkpoint", names)
            if not rows and definition.start != "start":
                continue  # Where it begins is known with its first run.
            after = Checkpoint(*rows[0]).position if rows else 0
            through = None
            if isinstance(definition.delivery, Outbox):
                outbox = connection.run("read_outbox", names)
                through = outbox[0][1] if outbox else None
            for position, event_type, recorded_at in _unreached(connection, feed, after):
                if through is not None and position > through:
                    break
                if wanted(event_type):
                    add(False, 1, recorded_at)
            for event_type, is_stuck, events, since in connection.run("queued_types", names):
                if wanted(event_type):
                    add(bool(is_stuck), events, moment(since))
    now = clock.now()
    return Lag(counts[False], age(now, oldest[False]), counts[True], age(now, oldest[True]))


def _feeds(connection: Connection, definition: Definition) -> list[str]:
    if not isinstance(definition.delivery, Log):
        return [definition.feed]
    rows = connection.run("read_layout", {"projection": definition.name})
    return shard_feeds(rows[0][0] if rows else definition.shards)


def _unreached(
    connection: Connection, feed: str, after: int
) -> Iterator[tuple[int, str, datetime | None]]:
    """Position, type and time of the events of a feed of the journal after a position."""
    if not is_journal(feed):
        return
    shards = shards_in(feed) or 1
    limit = 1  # Mostly the first event is one that counts.
    while True:
        rows = connection.run("events_after", {"after": after, "limit": limit})
        for position, stream, event_type, recorded_at in rows:
            if shards == 1 or shard_feed(shard_of(stream, shards), shards) == feed:
                yield position, event_type, moment(recorded_at)
        if len(rows) < limit:
            return
        after, limit = rows[-1][0], CHUNK_EVENTS
