"""Operators' changes to a whole projection."""

from __future__ import annotations

from holdfast.errors import ConfigError, HoldfastError, ProjectionFaulted
from holdfast.model.definition import Definition, Fold, Log, Outbox
from holdfast.model.feed_names import shard_feed, shard_feeds, shard_of
from holdfast.sql.database import Connection, Database
from holdfast.sql.operate.clearing import call_clear
from holdfast.sql.outbox.registration import add_types, publish
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.lane_rows import revoke_claims
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.store.session import needs_reset
from holdfast.sql.store.shard_layouts import admit, feeds_of, reset_layout
from holdfast.sql.store.start import restart
from holdfast.sql.store.tables import clear_tables


def reset(database: Database, definition: Definition, change: ChangedBy) -> list[str]:
    """Clears a projection's tables and checkpoint in one transaction; returns the tables' names.

    The class's `clear` is called first: other tables may refer to the projection's own.

    The present runner is fenced, and begins again at the first event.
    """
    name = {"projection": definition.name}
    whose = {**name, "feed": definition.feed}
    for attempt in operator_transactions(database):
        with attempt as connection:
            reset_layout(connection, definition)
            connection.run("reset_checkpoint", name)
            restart(connection, definition, feeds_of(connection, definition))
            connection.run("shorten_lock_timeout")
            # An append may commit in between: its lane is recounted, under a lock.
            connection.run("reset_lanes", name)
            connection.run("reset_queue", name)
            connection.run("reset_streams", name)
            connection.run("reset_seen", name)
            connection.run("forget_deliveries", name)
            connection.run("lock_all_lanes", whose)
            connection.run("recount_lanes", whose)
            connection.run("open_empty_lanes", whose)
            if not isinstance(definition.delivery, Outbox):
                connection.run("forget_outbox_types", name)
                connection.run("forget_outbox", name)
            else:
                ((drawn,),) = connection.run("last_drawn")
                connection.run("restart_backfill", {**name, "until": drawn})
                connection.run("forget_outbox_types", name)
                add_types(connection, definition)
            connection.run("record_registration")
            call_clear(database, connection, definition)
            tables = clear_tables(connection, definition)
            change.write(connection, "reset", definition.name, {"tables": tables})
    publish(database)
    database.announce()
    return tables


def owned_tables(database: Database, definition: Definition) -> list[str]:
    """The tables that a projection has made."""
    with database.reading() as connection:
        rows = connection.run("owned_tables", {"projection": definition.name})
    return [name for name, _ in rows]


def depose(database: Database, projection: str, change: ChangedBy) -> int:
    """Takes the projection from its runners; returns how many leases they had."""
    with database.reading() as connection:
        rows = connection.run("checkpoints_of", {"projection": projection})
    found = {checkpoint_id: epoch for checkpoint_id, epoch, *_ in rows}
    held = database.leased(found)
    for checkpoint_id, epoch in found.items():
        for attempt in operator_transactions(database):
            with attempt as connection:
                # In here: if nothing can be written, nothing is changed.
                database.depose(checkpoint_id)
                # A runner with a later epoch has taken over already, and stays.
                connection.run("raise_epoch", {"id": checkpoint_id, "epoch": epoch})
                change.write(connection, "depose", projection, {"epoch": epoch})
    return len(held)


def stream_end(database: Database, stream: str) -> int | None:
    """The position of a stream's last event."""
    with database.reading() as connection:
        rows = connection.run("stream_end", {"stream": stream})
    return int(rows[0][0]) if rows else None


def read_positions(
    database: Database, definition: Definition, feed: str | None, stream: str | None = None
) -> list[tuple[int, str]]:
    """Position and state of a projection's checkpoint on a feed; None: on all its shards.

    `stream`: on the shard that has it. Raises ProjectionFaulted if the projection is in an earlier
    journal.
    """
    name = {"projection": definition.name}
    with database.reading() as connection:
        # In this order: if shards change in between, one of the new ones is missing.
        is_journals = isinstance(definition.delivery, Log)
        layouts = connection.run("read_layout", name) if is_journals else []
        rows = connection.run("checkpoints_of", name)
    shards = layouts[0][0] if layouts else definition.shards
    feeds = [feed or definition.feed] if shards == 1 or feed else shard_feeds(shards)
    if stream is not None and shards > 1:
        feeds = [shard_feed(shard_of(stream, shards), shards)]
    found = {of: (position, state) for _, _, position, state, of, *_ in rows}
    if not all(is_of_this_journal for *_, is_of_this_journal in rows):
        raise ProjectionFaulted(
            f"projection {definition.name!r} has come to an event that the journal does not have: "
            "has it been replaced, or restored from an older copy? "
            f"holdfast reset {definition.name} begins again"
        )
    return [found.get(feed, (0, "stopped")) for feed in feeds]


def pause(database: Database, definition: Definition, change: ChangedBy) -> bool:
    """Stops a projection's work until it is resumed; returns whether it was not paused before.

    When this returns, nothing is committed any more.
    """
    projection = definition.name
    names = {"projection": projection, "feed": definition.feed}
    for attempt in operator_transactions(database):
        with attempt as connection:
            for feed in feeds_of(connection, definition):
                admit(connection, projection, feed)
                connection.run("open_checkpoint", {**names, "feed": feed})
            paused = connection.run(
                "pause", {**names, "at": change.at, "by": change.by, "note": change.note}
            )
            if paused:
                revoke_claims(connection, names)
                change.write(connection, "pause", projection, {})
    database.announce()
    return bool(paused)


def resume(database: Database, projection: str, change: ChangedBy) -> bool:
    """Lets a projection go on; returns whether it was paused."""
    for attempt in operator_transactions(database):
        with attempt as connection:
            connection.run("lock_layout", {"projection": projection})
            resumed = connection.run("resume", {"projection": projection})
            if resumed:
                change.write(connection, "resume", projection, {})
    database.announce()
    return bool(resumed)


def retry(database: Database, projection: str, change: ChangedBy) -> list[str]:
    """Has a projection that has stopped, or waits, try again at once; returns on which feeds."""
    for attempt in operator_transactions(database):
        with attempt as connection:
            connection.run("lock_layout", {"projection": projection})
            rows = connection.run("checkpoints_of", {"projection": projection})
            feeds = [feed for (feed,) in connection.run("retry", {"projection": projection})]
            if feeds:
                change.write(connection, "retry", projection, {"feeds": feeds})
    if any(must_be_reset for *_, must_be_reset, _ in rows):
        raise needs_reset(projection)
    database.announce()
    return feeds


def rewind(database: Database, definition: Definition, to: int | None, change: ChangedBy) -> int:
    """Goes back to a position, or (None) to before the first skipped event; returns the position.

    Raises where events that are applied again would leave other rows than before.
    """
    name = definition.name
    if isinstance(definition.delivery, Outbox):
        raise ConfigError(
            f"projection {name!r} can't be rewound: its events come from the queue, each of them "
            f"once. holdfast reset {name} delivers all of them again"
        )
    if definition.foreign is not None:
        raise ConfigError(
            f"projection {name!r} can't be rewound: it knows which events it has seen, so going "
            f"back would change nothing. holdfast reset {name} builds it again"
        )
    if isinstance(definition.kind, Fold):
        raise ConfigError(
            f"projection {name!r} can't be rewound: each of its rows remembers the last event it "
            "has seen, so going back would change nothing, and a skipped event can't be put in "
            f"before later ones. holdfast reset {name} builds it again from the first event"
        )
    if not definition.kind.projection.replayable:
        raise ConfigError(
            f"projection {name!r} can't be rewound: its handlers would see events again and may "
            "write them twice. If they write the same rows every time, say so with "
            f"replayable = True in the class; otherwise holdfast reset {name} builds it again"
        )
    for attempt in operator_transactions(database):
        with attempt as connection:
            feeds = [{"projection": name, "feed": f} for f in feeds_of(connection, definition)]
            position = _first_skip(connection, name, feeds) if to is None else to
            # All feeds, before the error.
            rewound = [f for f in feeds if connection.run("rewind", {**f, "position": position})]
            if not rewound:
                raise HoldfastError(
                    f"projection {name!r} is not beyond position {position}, so there is nothing "
                    "to go back for; holdfast status says where it is"
                )
            forgotten: list[int] = []
            for names in rewound:
                items = connection.run("delete_items_after", {**names, "position": position})
                forgotten += [row[0] for row in items]
                connection.run("open_empty_lanes", names)
                connection.run("recount_lanes", names)
            change.write(connection, "rewind", name, {"position": position, "items": forgotten})
    database.announce()
    return position


def _first_skip(connection: Connection, projection: str, feeds: list[dict[str, str]]) -> int:
    """The position before the first event that was skipped."""
    found = [connection.run("first_skipped", names)[0][0] for names in feeds]
    first = min((position for position in found if position is not None), default=None)
    if first is None:
        raise HoldfastError(
            f"projection {projection!r} has no skipped event in the queue (holdfast queue list "
            "--status skipped); to go back elsewhere, name a position"
        )
    return int(first) - 1
