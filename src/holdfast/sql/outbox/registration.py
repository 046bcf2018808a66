"""Registration for outbox delivery: which projections, which types, from which position on.

The backfill and the appends together must bring every event. An append reads the registrations in
its own transaction. On PostgreSQL its snapshot may be older than a registration. So, when it has
drawn its positions, it also reads a sequence, which depends on no snapshot and is raised after the
registration was committed: an append that misses the registration fails, and is tried again. An
append that has read the sequence before had drawn its positions, and the backfill goes up to the
last position that was drawn. An event that comes both ways is in the queue once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.errors import ConfigError, LayoutChanged
from holdfast.model.definition import Definition, Outbox
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.model.projection import CATCH_ALL
from holdfast.sql.database import Connection, Database
from holdfast.sql.store.shard_layouts import admit
from holdfast.sql.store.start import decide_start

_KINDS = {JOURNAL: "a projection", MESSAGES: "a sink"}


def register(database: Database, definition: Definition) -> None:
    """Has appends put events into the queue for a projection, from its checkpoint on.

    Adds new event types of a known projection. None is removed before a reset, since processes
    with other code may be running; events that are not handled are passed over. A known projection
    keeps the mode that the database has: the code's is what it begins with. One that runs in
    shards stays as it is, so that appends go on: its worker says what to do.
    """
    assert isinstance(definition.delivery, Outbox)
    whose = {"projection": definition.name, "feed": definition.feed}
    types = _types(definition)
    with database.reading() as connection:
        known = connection.run("read_outbox", whose)
        registered = {row[0] for row in connection.run("outbox_types", whose)}
    if known and registered.issuperset(types) and known[0][1] is not None:
        return
    with database.writing() as connection:
        connection.run("lock_registry")
        for name, feed, *_ in connection.run("outboxes"):
            if name == definition.name and feed != definition.feed:
                raise ConfigError(
                    f"{name!r} is known to this database as {_KINDS[feed]}, and this code says "
                    f"that it is {_KINDS[definition.feed]}; give it another name, or end that with "
                    f"holdfast outbox forget {name}"
                )
        if _has_shards(connection, definition):
            return
        connection.run("open_checkpoint", whose)
        is_new = connection.run("register_outbox", {**whose, "mode": definition.delivery.mode})
        if is_new:
            # Fences a runner that leads it by the log, and counts the parked events.
            connection.run("begin_relay", whose)
            connection.run("recount_lanes", whose)
        if is_new and definition.start in ("start", "now"):
            begin_backfill(connection, definition)
        add_types(connection, definition)
        connection.run("record_registration")
    with database.writing() as connection:
        connection.run("lock_registry")
        connection.run("publish_registration")
        # Messages that were sent before are not stored.
        until = 0 if definition.feed == MESSAGES else connection.run("last_drawn")[0][0]
        connection.run("set_backfill", {**whose, "until": until})


def begin_backfill(
    connection: Connection, definition: Definition, now: datetime | None = None
) -> None:
    """Moves a projection to where it begins, unless that was decided; in the open transaction.

    "now" is when it is registered. A position or a time is found when a worker runs it: one that is
    still to come must not keep anybody from appending.
    """
    if definition.feed == MESSAGES:
        return
    whose = {"projection": definition.name, "feed": definition.feed}
    _, _, position, *_ = connection.run("read_outbox", whose)[0]
    begins_at = decide_start(connection, whose, definition.start, now=now, position=position)
    if not position and begins_at:
        connection.run("pass_position", {**whose, "position": begins_at})
        pass_queued(connection, whose, begins_at)


def pass_queued(connection: Connection, whose: Mapping[str, str], position: int) -> int:
    """Takes events up to a position out of the queue that nobody has tried; returns how many."""
    removed = connection.run("delete_untried", {**whose, "position": position})
    if removed:
        connection.run("lock_all_lanes", whose)
        connection.run("recount_lanes", whose)
        connection.run("open_empty_lanes", whose)
    return len(removed)


def refuse_shards(connection: Connection, definition: Definition) -> None:
    """Raises ConfigError if the projection runs in shards, and so can't have an outbox."""
    if _has_shards(connection, definition):
        raise ConfigError(
            f"projection {definition.name!r} runs in shards on this database, and this code says "
            f"delivery='outbox'; run holdfast reshard {definition.name} --to 1 with the code that "
            "it has had so far, then go on with this"
        )


def _has_shards(connection: Connection, definition: Definition) -> bool:
    try:
        admit(connection, definition.name, definition.feed)
    except LayoutChanged:
        return True
    return False


def publish(database: Database) -> None:
    """From now on, appends with an older snapshot know that they miss a registration."""
    with database.writing() as connection:
        connection.run("lock_registry")
        connection.run("publish_registration")


def add_types(connection: Connection, definition: Definition) -> None:
    """Has appends queue events of the projection's types; in the open transaction."""
    for event_type in _types(definition):
        names = {"projection": definition.name, "feed": definition.feed, "event_type": event_type}
        connection.run("add_outbox_type", names)


def _types(definition: Definition) -> list[str]:
    return sorted({CATCH_ALL} if definition.catch_all else definition.handlers)


def first_left(
    database: Database, projection: str, feed: str, position: int, stream: str | None = None
) -> int | None:
    """The first event, up to a position, that will still be tried; None if there is none.

    `stream`: only events of this one count.
    """
    whose = {"projection": projection, "feed": feed}
    with database.reading() as connection:
        _, until, backfilled, *_ = connection.run("read_outbox", whose)[0]
        if until is None or backfilled < min(until, position):
            return int(backfilled) + 1
        names = whose | {"position": position}
        if stream is None:
            ((found,),) = connection.run("first_undelivered", names)
        else:
            ((found,),) = connection.run("first_undelivered_of", names | {"lane": stream})
    return None if found is None else int(found)
