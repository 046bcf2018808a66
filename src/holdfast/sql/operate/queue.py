"""The queue as people use it: look, and put right, without ever reordering a lane.

Every change locks the checkpoint first and raises its revision, so that it never crosses a
runner's transaction; and it leaves a row in the audit, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, groupby
from typing import Any

import msgspec

from holdfast.errors import ConfigError, HoldfastError, StoreConflict
from holdfast.model.event import RawEvent
from holdfast.model.feed_names import JOURNAL, is_journal, is_ours, shard_feed, shard_of, shards_in
from holdfast.model.foreign_feed import UNDECODABLE
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import (
    EARLY,
    OUTSTANDING,
    STATUSES,
    Attempt,
    NewItem,
    QueueChange,
    QueueCount,
    QueueItem,
    QueueSelection,
    Status,
)
from holdfast.sql.database import Connection, Database, Row, refuse_handlers
from holdfast.sql.operate.dead_letter_import import DeadLetterImport, ImportedDeadLetters
from holdfast.sql.store.audit import write_audit
from holdfast.sql.store.lane_rows import recount, waiting
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.store.transaction import SqlTransaction
from holdfast.sql.values import as_json, moment, uuid

ACTIONS: dict[str, tuple[Status, ...]] = {
    "requeue": ("failed", "dead"),
    "retry": ("failed", "dead"),
    "resolve": ("pending", "processing", "failed", "dead", "skipped"),
    "purge": ("skipped", "resolved", "done"),
}
"""What each action is for. Nothing outstanding is deleted, nothing that is over comes back."""


class Queue:
    """What waits, was skipped or resolved, of all projections of an App."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        prepare: Callable[[], None],
        lane_of: Callable[[str, RawEvent], str],
        source_of: Callable[[str], ForeignSource | None],
    ) -> None:
        self._database, self._clock, self._prepare = database, clock, prepare
        self._lane_of, self._source_of = lane_of, source_of

    def list(
        self, selection: QueueSelection | None = None, *, limit: int = 100, after_id: int = 0
    ) -> Sequence[QueueItem]:
        """Items that fit the selection, oldest first; go on with the last one's id."""
        self._prepare()
        with self._database.reading() as connection:
            return self._find(connection, selection or QueueSelection(), limit, after_id)

    def get(self, item_id: int) -> QueueItem:
        """One item, with its payload, its errors and its attempts."""
        self._prepare()
        with self._database.reading() as connection:
            return self._get(connection, item_id)

    def stats(self) -> Sequence[QueueCount]:
        """How many items there are by projection, status and error type, and their ages."""
        self._prepare()
        now = self._clock.now()
        with self._database.reading() as connection:
            rows = connection.run("queue_stats")
        return [
            QueueCount(projection, status, error_type or None, items, _age(now, oldest))
            for projection, status, error_type, items, oldest in rows
        ]

    def requeue(
        self,
        selection: QueueSelection,
        *,
        by: str,
        note: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
        accept_gap: bool = False,
    ) -> QueueChange:
        """Puts failed and dead items back in their lanes, to be tried at once, as if new.

        Their attempts begin again at 1; their history is kept. With `accept_gap`, items that miss
        an earlier version of their stream no longer do: it will be taken for a duplicate if it
        comes. Refused where an earlier version waits in the same lane.
        """
        gap = self._accept_gap if accept_gap else None
        return self._change("requeue", selection, by, note, limit, dry_run, {}, gap)

    def mark_retrying(
        self,
        selection: QueueSelection,
        *,
        by: str,
        at: datetime | None = None,
        note: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
    ) -> QueueChange:
        """Has failed and dead items tried once more, at a time; their attempts still count."""
        when = {"next_attempt_at": at or self._clock.now()}
        return self._change("retry", selection, by, note, limit, dry_run, when)

    def resolve(
        self,
        selection: QueueSelection,
        *,
        by: str,
        note: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
    ) -> QueueChange:
        """Says that a person has dealt with items: they are not tried, and their lanes go on."""
        return self._change(
            "resolve", selection, by, note, limit, dry_run, {"by": by}, self._pass_resolved
        )

    def purge(
        self,
        selection: QueueSelection,
        *,
        by: str,
        note: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
    ) -> QueueChange:
        """Deletes skipped, resolved and done items. What still waits is never deleted."""
        return self._change("purge", selection, by, note, limit, dry_run, {})

    def add(
        self,
        projection: str,
        position: int,
        *,
        by: str,
        feed: str = JOURNAL,
        note: str | None = None,
    ) -> QueueItem:
        """Parks the event that a projection comes to next, such as one that stops it.

        It is passed by this, as when a policy parks it: it waits for a person, and the projection
        goes on with the other lanes. Raises for any other event. On Kafka `feed` names the
        partition.
        """
        refuse_handlers(self._database, "the queue")
        self._prepare()
        now = self._clock.now()
        source = self._source_of(projection)
        if source is None and not is_journal(feed):
            raise ConfigError(f"projection {projection!r} reads the journal, and no other feed")
        if source is not None and feed == JOURNAL:
            raise ConfigError(f"projection {projection!r} reads several feeds; say which: feed=…")
        names = {"projection": projection, "feed": feed}
        coming = None if source is None else self._coming(source, names)
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                if source is None:
                    shard = self._shard(connection, projection, position)
                    if feed not in (JOURNAL, shard):
                        raise ConfigError(
                            f"position {position} of projection {projection!r} is in feed "
                            f"{shard!r}, not {feed!r}; leave the feed out"
                        )
                    names = {"projection": projection, "feed": shard}
                rows = connection.run("bump_revision", names)
                if not rows:
                    raise ConfigError(f"projection {projection!r} has never run here")
                if connection.run("read_outbox", names):
                    raise ConfigError(
                        f"projection {projection!r} is delivered by an outbox: its events are in "
                        "the queue already"
                    )
                if position <= rows[0][0]:
                    raise HoldfastError(
                        f"projection {projection!r} has passed position {position}, and is at "
                        f"{rows[0][0]}; if the event has failed, holdfast queue list shows it"
                    )
                checkpoint = Checkpoint(*connection.run("read_checkpoint", names)[0])
                work = SqlTransaction(self._database, connection)
                if source is None:
                    event: RawEvent | None = self._event(connection, position)
                    is_next = self._is_next(connection, checkpoint, position)
                else:
                    after, event = coming or (-1, None)
                    is_next = after == checkpoint.position and (
                        event is not None and event.position == position
                    )
                if event is None or not is_next:
                    raise HoldfastError(
                        f"projection {projection!r} is at position {checkpoint.position}, and "
                        f"other events come before {position}; park it when the projection has "
                        "come to it"
                    )
                lane = self._lane_of(projection, event)
                work.enqueue(checkpoint, [NewItem(event, lane, "dead")], now)
                connection.run("pass_position", {**names, "position": position})
                recount(connection, projection, names["feed"], lane)
                ((item_id, *_),) = connection.run("item_at", {**names, "position": position})
                item = self._get(connection, item_id)
                write_audit(
                    connection,
                    at=now,
                    by=by,
                    action="add",
                    projection=projection,
                    subject={"items": [item.id]},
                    note=note,
                )
        self._database.announce()
        return item

    def bring_in(
        self,
        projection: str,
        topic: str,
        *,
        by: str,
        note: str | None = None,
        hold: bool = False,
        limit: int = 1_000,
        dry_run: bool = False,
    ) -> ImportedDeadLetters:
        """Puts what is in a dead-letter topic, whoever has written it, into the queue.

        Each event waits in its lane and is tried in its turn; with `hold`, only when a person says
        so. What is in the queue already, or has been applied, is left alone, so that this can be
        repeated.
        """
        refuse_handlers(self._database, "the queue")
        self._prepare()
        source = self._source_of(projection)
        if source is None:
            raise ConfigError(f"projection {projection!r} has no source with dead letters")
        letters = DeadLetterImport(
            self._database,
            clock=self._clock,
            projection=projection,
            intake=source.intake(),
            lane_of=partial(self._lane_of, projection),
            by=by,
            note=note,
        )
        status: Status = "dead" if hold else "pending"
        return letters.bring_in(source, topic, status, limit=limit, dry_run=dry_run)

    def _change(
        self,
        action: str,
        selection: QueueSelection,
        by: str,
        note: str | None,
        limit: int,
        dry_run: bool,
        values: dict[str, Any],
        then: Callable[[Connection, QueueItem], None] | None = None,
    ) -> QueueChange:
        self._prepare()
        if dry_run:
            with self._database.reading() as connection:
                chosen, left_alone = self._choose(connection, action, selection, limit)
            return QueueChange(action=action, items=chosen, left_alone=left_alone, dry_run=True)
        refuse_handlers(self._database, "the queue")
        now = self._clock.now()
        names = {"at": now, "note": note, **values}
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                chosen, left_alone = self._choose(connection, action, selection, limit)
                places = self._lock(connection, chosen)
                done = [i for i in chosen if connection.run(f"{action}_item", names | {"id": i.id})]
                if then is not None:
                    for item in sorted(done, key=lambda item: item.version):
                        if not is_ours(item.feed):
                            then(connection, item)
                changed = {(item.projection, item.feed, item.lane) for item in done}
                for place in places:
                    # A lane that a worker has claimed meanwhile stays its own.
                    if place in changed or not waiting(connection, *place):
                        recount(connection, *place)
                for projection in sorted({item.projection for item in done}):
                    ids = [item.id for item in done if item.projection == projection]
                    write_audit(
                        connection,
                        at=now,
                        by=by,
                        action=action,
                        projection=projection,
                        subject={"items": ids},
                        note=note,
                    )
        self._database.announce()
        return QueueChange(action=action, items=tuple(done), left_alone=left_alone, dry_run=False)

    def _choose(
        self, connection: Connection, action: str, selection: QueueSelection, limit: int
    ) -> tuple[tuple[QueueItem, ...], tuple[QueueItem, ...]]:
        """The items that an action is for, and those that were meant but are not."""
        allowed = ACTIONS[action]
        found: Sequence[QueueItem]
        if selection.ids:
            ids = dict.fromkeys(selection.ids)
            found = [self._get(connection, item_id) for item_id in ids]
        else:
            statuses = allowed if selection.status is None else (selection.status,)
            selections = [msgspec.structs.replace(selection, status=one) for one in statuses]
            parts = [self._find(connection, one, limit, 0) for one in selections]
            found = sorted(chain.from_iterable(parts), key=lambda item: item.id)[:limit]
        return (
            tuple(item for item in found if item.status in allowed),
            tuple(item for item in found if item.status not in allowed),
        )

    def _coming(
        self, source: ForeignSource, names: dict[str, str]
    ) -> tuple[int, RawEvent | None] | None:
        """Where a projection is on a foreign feed, and what comes next there."""
        with self._database.reading() as connection:
            rows = connection.run("read_checkpoint", names)
        if not rows:
            return None
        after = Checkpoint(*rows[0]).position
        return after, source.next_event(names["feed"], after)

    def _shard(self, connection: Connection, projection: str, position: int) -> str:
        """The feed on which a projection comes to an event of the journal."""
        rows = connection.run("lock_layout", {"projection": projection})
        shards = rows[0][0] if rows else 1
        if shards == 1:
            return JOURNAL
        return shard_feed(shard_of(self._event(connection, position).stream, shards), shards)

    def _is_next(self, connection: Connection, checkpoint: Checkpoint, position: int) -> bool:
        """Whether nothing of the feed comes before an event, now or later."""
        after, shards = checkpoint.position, shards_in(checkpoint.feed) or 1
        while True:
            events = connection.settled(after, 1 if shards == 1 else 500).events
            for event in events:
                if shard_feed(shard_of(event.stream, shards), shards) == checkpoint.feed:
                    return event.position == position
            if not events or events[-1].position >= position:
                return False
            after = events[-1].position

    @staticmethod
    def _lock(connection: Connection, items: Sequence[QueueItem]) -> Sequence[tuple[str, str, str]]:
        """Locks the lanes of items that keep them closed, and returns them."""
        for projection, feed in sorted({(item.projection, item.feed) for item in items}):
            found = connection.run("bump_revision", {"projection": projection, "feed": feed})
            layout = [] if found else connection.run("read_layout", {"projection": projection})
            if layout and shards_in(feed) not in (None, layout[0][0]):
                raise StoreConflict(f"shards of projection {projection!r} have changed meanwhile")
        places = sorted({(i.projection, i.feed, i.lane) for i in items if i.status in OUTSTANDING})
        connection.run("shorten_lock_timeout")
        for (projection, feed), group in groupby(places, key=lambda place: place[:2]):
            lanes = as_json([lane for *_, lane in group])
            names = {"projection": projection, "feed": feed, "lanes": lanes}
            connection.run("lock_lanes", names)
        return places

    def _accept_gap(self, connection: Connection, item: QueueItem) -> None:
        """The stream is where the item expects it to be."""
        if item.error_type != EARLY:
            return
        if _waits_before(connection, item):
            raise HoldfastError(
                f"item {item.id} is version {item.version} of stream {item.stream!r}, and an "
                "earlier one waits in its lane, which would be taken for a duplicate; requeue or "
                "resolve that one first"
            )
        _pass_version(connection, item, item.version - 1)

    def _pass_resolved(self, connection: Connection, item: QueueItem) -> None:
        """The stream goes on behind the item; if something waits before it, when that is done.

        Not behind one that came too early: what it missed may still come.
        """
        source = self._source_of(item.projection)
        intake = None if source is None else source.intake()
        if item.status not in OUTSTANDING or item.error_type == EARLY:
            return
        if intake is not None and not intake.contiguous:
            names = {"projection": item.projection, "feed": item.feed}
            event = [{"id": item.event_id, "position": item.position}]
            connection.run("write_seen", {**names, "events": as_json(event)})
            return
        unnumbered = {UNDECODABLE} if intake is None else intake.unnumbered
        if item.event_type not in unnumbered and not _waits_before(connection, item):
            _pass_version(connection, item, item.version)

    def _event(self, connection: Connection, position: int) -> RawEvent:
        for event in connection.read(position - 1, 1):
            if event.position == position:
                return event
        raise HoldfastError(f"the journal has no event at position {position}")

    def _find(
        self, connection: Connection, selection: QueueSelection, limit: int, after_id: int
    ) -> Sequence[QueueItem]:
        if selection.status is not None and selection.status not in STATUSES:
            raise ConfigError(f"status {selection.status!r} is not one of {', '.join(STATUSES)}")
        if selection.ids:
            found = [connection.run("get_item", {"id": id_}) for id_ in sorted(selection.ids)]
            return [_item(rows[0]) for rows in found if rows][:limit]
        until = datetime.max.replace(tzinfo=UTC)
        if selection.older_than_seconds is not None:
            until = self._clock.now() - timedelta(seconds=selection.older_than_seconds)
        rows = connection.run(
            "list_items",
            {
                "projection": selection.projection,
                "lane": selection.lane,
                "version": selection.version,
                "status": selection.status,
                "error_type": selection.error_type,
                "event_type": selection.event_type,
                "created_until": until,
                "after_id": after_id,
                "limit": limit,
            },
        )
        return [_item(row) for row in rows]

    def _get(self, connection: Connection, item_id: int) -> QueueItem:
        rows = connection.run("get_item", {"id": item_id})
        if not rows:
            raise HoldfastError(f"the queue has no item {item_id}; holdfast queue list shows all")
        return _item(rows[0])


def _item(row: Row) -> QueueItem:
    names = QueueItem.__struct_fields__
    values = dict(zip(names, row, strict=True))
    for name in names:
        if name.endswith("_at"):
            values[name] = moment(values[name])
    values["event_id"] = uuid(values["event_id"])
    values["history"] = msgspec.json.decode(values["history"], type=tuple[Attempt, ...])
    return QueueItem(**values)


def _age(now: datetime, since: Any) -> float:
    at = moment(since)
    return 0.0 if at is None else max(0.0, (now - at).total_seconds())


def _waits_before(connection: Connection, item: QueueItem) -> bool:
    names = {name: getattr(item, name) for name in ("projection", "feed", "lane", "version")}
    return bool(connection.run("waits_before", names))


def _pass_version(connection: Connection, item: QueueItem, version: int) -> None:
    names = {name: getattr(item, name) for name in ("projection", "feed", "stream")}
    connection.run("pass_version", {**names, "version": version})
