"""The import of dead letters, of any consumer, into the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar
from uuid import UUID

import msgspec

from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.runtime.run.foreign_source import ForeignDeadLetter, ForeignSource
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import NewItem, Status
from holdfast.sql.database import Connection, Database
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.lane_rows import recount
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.store.queue_rows import enqueue
from holdfast.sql.values import as_json

T = TypeVar("T")

IMPORT_EVENTS = 500
"""Maximum of events that are put into the queue in one transaction."""


class ImportedDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from a dead-letter topic, put into the queue, and left alone as known.

    `is_complete`: the topic was read to its end.
    """

    read: int
    added: int
    known: int
    is_complete: bool
    dry_run: bool


class DeadLetterImport:
    """Puts dead letters into the queue of one projection, for an operator."""

    def __init__(
        self,
        database: Database,
        *,
        projection: str,
        foreign: ForeignFeed,
        lane_of: Callable[[RawEvent], str],
        change: ChangedBy,
    ) -> None:
        self._database, self._projection, self._foreign = database, projection, foreign
        self._lane_of, self._change = lane_of, change
        self._imported: set[UUID | tuple[str, int]] = set()
        """The events of this import, by id, and by stream and version: a topic may have copies."""

    def bring_in(
        self, source: ForeignSource, topic: str, status: Status, *, limit: int, dry_run: bool
    ) -> ImportedDeadLetters:
        """Reads a topic to its end, or until `limit` events were put into the queue."""
        read = added = 0
        is_complete = True
        for found in batched(source.letters(topic), IMPORT_EVENTS):
            if added >= limit:
                is_complete = False
                break
            read += len(found)
            by_feed: dict[str, list[ForeignDeadLetter]] = {}
            for letter in found:
                by_feed.setdefault(letter.feed or source.feed, []).append(letter)
            for feed, letters in by_feed.items():
                part = letters[: limit - added]
                is_complete = is_complete and len(part) == len(letters)
                added += self._bring_in(feed, part, status, dry_run=dry_run)
        return ImportedDeadLetters(
            read=read, added=added, known=read - added, is_complete=is_complete, dry_run=dry_run
        )

    def _bring_in(
        self, feed: str, letters: Sequence[ForeignDeadLetter], status: Status, *, dry_run: bool
    ) -> int:
        """Puts events of one feed into the queue; returns how many were not there."""
        names = {"projection": self._projection, "feed": feed}
        added: set[int] = set()
        for attempt in operator_transactions(self._database):
            with attempt as connection:
                events = self._new(connection, names, letters)
                new = [NewItem(event, self._lane_of(event), status) for event in events]
                if dry_run or not new:
                    break
                connection.run("open_checkpoint", names)
                connection.run("bump_revision", names)
                checkpoint = Checkpoint(*connection.run("read_checkpoint", names)[0])
                added = enqueue(connection, checkpoint, new, self._change.at)
                for lane in sorted({entry.lane for entry in new}):
                    recount(connection, self._projection, feed, lane)
                subject = {"feed": feed, "positions": sorted(added)}
                self._change.write(connection, "import", self._projection, subject)
        for event in events:
            self._imported.update(self._names_of(event))
        if added:
            self._database.announce()
        return len(new) if dry_run else len(added)

    def _new(
        self, connection: Connection, names: Mapping[str, str], letters: Sequence[ForeignDeadLetter]
    ) -> Sequence[RawEvent]:
        """The events that are neither applied, as far as that can be known, nor in the queue."""
        new: list[RawEvent] = []
        imported = set(self._imported)
        is_known = self._known(connection, [letter.event for letter in letters])
        rows = connection.run("read_checkpoint", names)
        reached = Checkpoint(*rows[0]).position if rows else 0
        for letter in letters:
            event = letter.event
            if is_known(event) or not imported.isdisjoint(self._names_of(event)):
                continue
            imported.update(self._names_of(event))
            if not self._foreign.contiguous:
                if letter.position is not None and letter.position <= reached:
                    continue  # The projection has passed it there, and it does not wait.
                event = msgspec.structs.replace(event, version=event.position)
            new.append(event)
        return new

    def _names_of(self, event: RawEvent) -> list[UUID | tuple[str, int]]:
        """What an event has in common with its copies."""
        if self._foreign.contiguous and event.type not in self._foreign.unnumbered:
            return [event.id, (event.stream, event.version)]
        return [event.id]

    def _known(
        self, connection: Connection, events: Sequence[RawEvent]
    ) -> Callable[[RawEvent], bool]:
        """Whether an event was applied, as far as that can be known, or is in the queue."""
        projection = {"projection": self._projection}
        ids = {"ids": as_json([event.id for event in events])}
        known = {UUID(id_) for (id_,) in connection.run("queued_ids", projection | ids)}
        if self._foreign.contiguous:
            streams = as_json(sorted({event.stream for event in events}))
            found = connection.run("read_versions", {**projection, "streams": streams})
            versions: dict[str, int] = dict(found)
            unnumbered = self._foreign.unnumbered
            return lambda e: (
                e.id in known
                or (e.type not in unnumbered and e.version <= versions.get(e.stream, -1))
            )
        known |= {UUID(id_) for (id_,) in connection.run("seen_ids", projection | ids)}
        return lambda event: event.id in known


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of up to `size`."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
