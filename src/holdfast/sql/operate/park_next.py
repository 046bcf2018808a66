"""Parks an event that an operator or the application knows to be bad."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.errors import ConfigError, HoldfastError
from holdfast.model.event import RawEvent
from holdfast.model.feed_names import JOURNAL, is_journal, shard_feed, shard_of, shards_in
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import (
    MAX_HISTORY,
    NO_FAILURE,
    Attempt,
    FailedAttempt,
    FailureHistory,
    NewItem,
    QueueItem,
)
from holdfast.sql.database import Connection, Database
from holdfast.sql.operate.queue_items import get_item
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.lane_rows import recount
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.store.queue_rows import enqueue, fail_item
from holdfast.sql.values import as_json, moment


def park_next(
    database: Database,
    source: ForeignSource | None,
    projection: str,
    feed: str,
    position: int,
    *,
    lane_of: Callable[[RawEvent], str],
    change: ChangedBy,
    history: FailureHistory,
) -> QueueItem:
    """Puts an event into the queue as dead, and moves the checkpoint past it.

    `source`: where the projection reads, if not the journal. Raises unless the event is the next.
    """
    if source is None and not is_journal(feed):
        raise ConfigError(f"projection {projection!r} reads the journal, and no other feed")
    if source is not None and feed == JOURNAL:
        raise ConfigError(f"projection {projection!r} reads several feeds; say which: feed=…")
    names = {"projection": projection, "feed": feed}
    coming = None if source is None else _next_of(database, source, names)
    for attempt in operator_transactions(database):
        with attempt as connection:
            if source is None:
                names["feed"] = _shard_of(connection, projection, feed, position)
            checkpoint = _lock(connection, names, position)
            if source is None:
                event = _next_of_journal(connection, checkpoint, position)
            else:
                after, event = coming or (-1, None)
                if after != checkpoint.position or event is None or event.position != position:
                    event = None
            if event is None:
                raise HoldfastError(
                    f"projection {projection!r} is at position {checkpoint.position}, and "
                    f"other events come before {position}; park it when the projection has "
                    "come to it"
                )
            lane = lane_of(event)
            known = _joined(_history(connection, names, position), history)
            enqueue(connection, checkpoint, [NewItem(event, lane, "dead", known)], change.at)
            connection.run("pass_position", {**names, "position": position})
            connection.run("end_fault", {**names, "position": position})
            recount(connection, projection, names["feed"], lane)
            ((item_id, *_),) = connection.run("item_at", {**names, "position": position})
            item = _note(connection, item_id, change)
            change.write(connection, "add", projection, {"items": [item.id]})
    return item


def _history(connection: Connection, names: Mapping[str, str], position: int) -> FailureHistory:
    """The failures of the event, if it is the one that the projection has stopped at."""
    rows = connection.run("read_failure", {**names, "position": position})
    if not rows:
        return NO_FAILURE
    attempts, since, at, *error = rows[0]
    failed_at = moment(at)
    assert failed_at is not None
    type_, message, stacktrace = error
    last = Attempt(failed_at, type_, message, stacktrace)
    return FailureHistory(max(1, attempts), moment(since) or failed_at, (last,))


def _joined(known: FailureHistory, reported: FailureHistory) -> FailureHistory:
    """What is known of an event, and what an operator says of it."""
    return FailureHistory(
        known.attempts,
        known.first_failed_at or reported.first_failed_at,
        (*known.last_attempts, *reported.last_attempts)[-MAX_HISTORY:],
    )


def park_queued(
    database: Database,
    names: Mapping[str, str],
    position: int,
    *,
    change: ChangedBy,
    history: FailureHistory,
) -> QueueItem:
    """Makes an item of an outbox dead that waits; its lane goes on up to it."""
    projection = names["projection"]
    for attempt in operator_transactions(database):
        with attempt as connection:
            connection.run("bump_revision", names)
            found = connection.run("item_at", {**names, "position": position})
            if not found:
                raise HoldfastError(
                    f"projection {projection!r} has no event at position {position} in its queue: "
                    "it was applied, or it is none of its events"
                )
            lane = get_item(connection, found[0][0]).lane
            connection.run("shorten_lock_timeout")
            connection.run("lock_lanes", {**names, "lanes": as_json([lane])})
            item = get_item(connection, found[0][0])
            if item.status not in ("pending", "failed", "dead"):
                raise HoldfastError(
                    f"item {item.id} is {item.status}, and can't be parked; holdfast queue show "
                    f"{item.id} says more"
                )
            known = FailureHistory(item.attempts, item.first_failed_at, tuple(item.history))
            dead = FailedAttempt(item.id, "dead", _joined(known, history), item.retries, None)
            fail_item(connection, dead, change.at)
            recount(connection, projection, names["feed"], lane)
            item = _note(connection, item.id, change)
            change.write(connection, "add", projection, {"items": [item.id]})
    return item


def _note(connection: Connection, item_id: int, change: ChangedBy) -> QueueItem:
    """The item, with the note of the change."""
    connection.run("note_item", {"id": item_id, "note": change.note})
    return get_item(connection, item_id)


def _lock(connection: Connection, names: Mapping[str, str], position: int) -> Checkpoint:
    """The checkpoint, which no runner moves before the transaction ends."""
    projection = names["projection"]
    rows = connection.run("bump_revision", names)
    if not rows:
        raise ConfigError(f"projection {projection!r} has never run here")
    if position <= rows[0][0]:
        raise HoldfastError(
            f"projection {projection!r} has passed position {position}, and is at "
            f"{rows[0][0]}; if the event has failed, holdfast queue list shows it"
        )
    return Checkpoint(*connection.run("read_checkpoint", names)[0])


def _next_of(
    database: Database, source: ForeignSource, names: Mapping[str, str]
) -> tuple[int, RawEvent | None] | None:
    """The projection's position on a foreign feed, and the next event there."""
    with database.reading() as connection:
        rows = connection.run("read_checkpoint", names)
    if not rows:
        return None
    after = Checkpoint(*rows[0]).position
    return after, source.next_event(names["feed"], after)


def _next_of_journal(
    connection: Connection, checkpoint: Checkpoint, position: int
) -> RawEvent | None:
    """The event at a position; None if another event of the feed comes before it."""
    wanted = _event(connection, position)
    after, shards = checkpoint.position, shards_in(checkpoint.feed) or 1
    while True:
        events = connection.settled(after, 1 if shards == 1 else 500).events
        for event in events:
            if shard_feed(shard_of(event.stream, shards), shards) == checkpoint.feed:
                return wanted if event.position == position else None
        if not events or events[-1].position >= position:
            return None
        after = events[-1].position


def _shard_of(connection: Connection, projection: str, feed: str, position: int) -> str:
    """The feed on which a projection comes to an event of the journal."""
    rows = connection.run("lock_layout", {"projection": projection})
    shards = rows[0][0] if rows else 1
    shard = JOURNAL
    if shards != 1:
        shard = shard_feed(shard_of(_event(connection, position).stream, shards), shards)
    if feed not in (JOURNAL, shard):
        raise ConfigError(
            f"position {position} of projection {projection!r} is in feed "
            f"{shard!r}, not {feed!r}; leave the feed out"
        )
    return shard


def _event(connection: Connection, position: int) -> RawEvent:
    for event in connection.read(position - 1, 1):
        if event.position == position:
            return event
    raise HoldfastError(f"the journal has no event at position {position}")
