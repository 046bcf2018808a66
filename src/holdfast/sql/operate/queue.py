"""The queue for operators: what is in it, and changes that never reorder a lane.

Every change locks the checkpoint first and raises its revision, so that it never crosses a
runner's transaction. It leaves a row in the audit, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from typing import Any

import msgspec

from holdfast.errors import ConfigError, HoldfastError, StoreConflict
from holdfast.model import arguments
from holdfast.model.event import RawEvent
from holdfast.model.feed_names import JOURNAL, is_ours, shards_in
from holdfast.model.foreign_feed import UNDECODABLE
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import (
    EARLY,
    NO_FAILURE,
    OUTSTANDING,
    FailureHistory,
    QueueChange,
    QueueCount,
    QueueItem,
    QueueSelection,
    Status,
    attempt_of,
)
from holdfast.sql.database import Connection, Database, refuse_handlers
from holdfast.sql.operate.dead_letter_import import DeadLetterImport, ImportedDeadLetters
from holdfast.sql.operate.park_next import park_next, park_queued
from holdfast.sql.operate.queue_items import find_items, get_item, no_item
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.lane_rows import recount, waiting
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.values import as_json, moment

ACTIONS: dict[str, tuple[Status, ...]] = {
    "requeue": ("failed", "dead"),
    "retry": ("failed", "dead"),
    "resolve": ("pending", "processing", "retrying", "failed", "dead", "skipped"),
    "purge": ("skipped", "resolved", "done"),
}
"""The statuses that each action takes. What waits is never deleted, what is over never waits."""


class Reported(Exception):
    """What an operator, or the application, says is wrong with an event."""


class Queue:
    """Events that wait, were skipped or were resolved, of all projections of an App."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        prepare: Callable[[], None],
        has_tables: Callable[[], bool],
        lane_of: Callable[[str, RawEvent], str],
        source_of: Callable[[str], ForeignSource | None],
    ) -> None:
        self._database, self._clock, self._prepare = database, clock, prepare
        self._has_tables = has_tables
        self._lane_of, self._source_of = lane_of, source_of

    def list(
        self, selection: QueueSelection | None = None, *, limit: int = 100, after_id: int = 0
    ) -> Sequence[QueueItem]:
        """Items that fit the selection, oldest first; go on with the last one's id."""
        selection = QueueSelection() if selection is None else _checked(selection)
        arguments.whole("limit", limit)
        arguments.whole("after_id", after_id)
        if not self._has_tables():
            return []
        with self._database.reading() as connection:
            return self._find(connection, selection, limit, after_id)

    def get(self, item_id: int) -> QueueItem:
        """One item, with its payload, its errors and its attempts."""
        arguments.whole("item_id", item_id)
        if not self._has_tables():
            raise no_item(item_id)
        with self._database.reading() as connection:
            return get_item(connection, item_id)

    def stats(self) -> Sequence[QueueCount]:
        """How many items there are by projection, status and error type, and their ages."""
        if not self._has_tables():
            return []
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
        return self._change("requeue", selection, self._by(by, note), limit, dry_run, then=gap)

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
        change = self._by(by, note)
        if at is not None:
            arguments.moment("at", at)
        when = {"next_attempt_at": at or change.at}
        return self._change("retry", selection, change, limit, dry_run, when)

    def resolve(
        self,
        selection: QueueSelection,
        *,
        by: str,
        note: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
    ) -> QueueChange:
        """Marks items as dealt with by an operator: they are not tried, and their lanes go on."""
        change = self._by(by, note)
        return self._change(
            "resolve", selection, change, limit, dry_run, {"by": by}, self._pass_resolved
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
        return self._change("purge", selection, self._by(by, note), limit, dry_run)

    def add(
        self,
        projection: str,
        position: int,
        *,
        by: str,
        feed: str = JOURNAL,
        error: BaseException | str | None = None,
        note: str | None = None,
    ) -> QueueItem:
        """Parks an event that is known to be bad: it waits for an operator, with its lane.

        In outbox delivery that is any event that waits. Otherwise it is the one that a projection
        comes to next, such as one that stops it; the projection passes it, as when a policy parks
        it. Raises for any other event. On Kafka `feed` names the partition. `error` says what is
        wrong with the event.
        """
        refuse_handlers(self._database, "the queue")
        arguments.text("projection", projection)
        arguments.text("feed", feed)
        arguments.whole("position", position)
        self._prepare()
        change, history = self._by(by, note), NO_FAILURE
        if error is not None:
            error = Reported(error) if isinstance(error, str) else error
            history = FailureHistory(0, change.at, (attempt_of(error, change.at),))
        with self._database.reading() as connection:
            outboxes = {name: own for name, own, *_ in connection.run("outboxes")}
        if projection in outboxes:
            names = {"projection": projection, "feed": outboxes[projection]}
            item = park_queued(self._database, names, position, change=change, history=history)
            self._database.announce()
            return item
        item = park_next(
            self._database,
            self._source_of(projection),
            projection,
            feed,
            position,
            lane_of=partial(self._lane_of, projection),
            change=change,
            history=history,
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
        """Puts the events of a dead-letter topic of any consumer into the queue.

        Each event waits in its lane and is tried in its turn; with `hold`, only when an operator
        requeues it. Events that are in the queue already, or have been applied, are left alone:
        the import can be repeated.
        """
        refuse_handlers(self._database, "the queue")
        self._prepare()
        source = self._source_of(projection)
        if source is None:
            raise ConfigError(f"projection {projection!r} has no source with dead letters")
        letters = DeadLetterImport(
            self._database,
            projection=projection,
            foreign=source.foreign_feed(),
            lane_of=partial(self._lane_of, projection),
            change=self._by(by, note),
        )
        status: Status = "dead" if hold else "pending"
        return letters.bring_in(source, topic, status, limit=limit, dry_run=dry_run)

    def _change(
        self,
        action: str,
        selection: QueueSelection,
        change: ChangedBy,
        limit: int,
        dry_run: bool,
        values: Mapping[str, Any] | None = None,
        then: Callable[[Connection, QueueItem], None] | None = None,
    ) -> QueueChange:
        arguments.whole("limit", limit)
        _checked(selection)
        if dry_run:
            if not self._has_tables():
                return QueueChange(action=action, items=(), left_alone=(), dry_run=True)
            with self._database.reading() as connection:
                chosen, left_alone = self._choose(connection, action, selection, limit)
            return QueueChange(action=action, items=chosen, left_alone=left_alone, dry_run=True)
        self._prepare()
        refuse_handlers(self._database, "the queue")
        names = {"at": change.at, "note": change.note, **(values or {})}
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
                    # A lane that did not change keeps the claim of its worker.
                    if place in changed or not waiting(connection, *place):
                        recount(connection, *place)
                for projection in sorted({item.projection for item in done}):
                    ids = [item.id for item in done if item.projection == projection]
                    change.write(connection, action, projection, {"items": ids})
        self._database.announce()
        return QueueChange(action=action, items=tuple(done), left_alone=left_alone, dry_run=False)

    def _choose(
        self, connection: Connection, action: str, selection: QueueSelection, limit: int
    ) -> tuple[tuple[QueueItem, ...], tuple[QueueItem, ...]]:
        """The items that an action takes, and the selected ones that it leaves alone."""
        allowed = ACTIONS[action]
        found: Sequence[QueueItem]
        if selection.ids:
            ids = dict.fromkeys(selection.ids)
            found = [get_item(connection, item_id) for item_id in ids]
        else:
            statuses = allowed if selection.status is None else (selection.status,)
            selections = [msgspec.structs.replace(selection, status=one) for one in statuses]
            parts = [self._find(connection, one, limit, 0) for one in selections]
            found = sorted(chain.from_iterable(parts), key=lambda item: item.id)[:limit]
        return (
            tuple(item for item in found if item.status in allowed),
            tuple(item for item in found if item.status not in allowed),
        )

    @staticmethod
    def _lock(connection: Connection, items: Sequence[QueueItem]) -> Sequence[tuple[str, str, str]]:
        """Locks the lanes that these items keep closed, and returns them."""
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
        """Moves the stream to the version before an item that came too early."""
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
        """Moves the stream past a resolved item, unless an earlier version still waits.

        Not past an item that came too early: the missing versions may still come.
        """
        source = self._source_of(item.projection)
        foreign = None if source is None else source.foreign_feed()
        if item.status not in OUTSTANDING or item.error_type == EARLY:
            return
        if foreign is not None and not foreign.contiguous:
            names = {"projection": item.projection, "feed": item.feed}
            event = [{"id": item.event_id, "position": item.position}]
            connection.run("write_seen", {**names, "events": as_json(event)})
            return
        unnumbered = {UNDECODABLE} if foreign is None else foreign.unnumbered
        if item.event_type not in unnumbered and not _waits_before(connection, item):
            _pass_version(connection, item, item.version)

    def _find(
        self, connection: Connection, selection: QueueSelection, limit: int, after_id: int
    ) -> Sequence[QueueItem]:
        return find_items(
            connection, selection, limit=limit, after_id=after_id, now=self._clock.now()
        )

    def _by(self, by: str, note: str | None) -> ChangedBy:
        return ChangedBy(by, self._clock.now(), note)


def _checked(selection: QueueSelection) -> QueueSelection:
    if not isinstance(selection, QueueSelection):
        raise ConfigError(f"{selection!r} is not a QueueSelection, which says what is selected")
    return selection


def _age(now: datetime, since: Any) -> float:
    at = moment(since)
    return 0.0 if at is None else max(0.0, (now - at).total_seconds())


def _waits_before(connection: Connection, item: QueueItem) -> bool:
    names = {name: getattr(item, name) for name in ("projection", "feed", "lane", "version")}
    return bool(connection.run("waits_before", names))


def _pass_version(connection: Connection, item: QueueItem, version: int) -> None:
    names = {name: getattr(item, name) for name in ("projection", "feed", "stream")}
    connection.run("pass_version", {**names, "version": version})
