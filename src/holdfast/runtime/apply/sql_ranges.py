"""Applies stretches of the journal by a SqlProjection's statements, inside the database.

A stretch that the database refuses is halved, until the one event is left that is to blame; that
one goes the way of a single event, with its policy.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

from holdfast.model.event import RawEvent
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.run.batch_reader import BATCH_BYTES
from holdfast.runtime.signals import Queued
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.queue_items import NewItem
from holdfast.runtime.store.ranges import EventRange, RangeStatements


class _Overflow(Exception):
    """There is no room for what has to wait, in a closed lane or in memory."""


class RangeApplier:
    """Applies stretches, and moves the checkpoint on with every commit."""

    def __init__(
        self,
        stint: Leadership,
        sets: RangeStatements,
        *,
        read_one: Callable[[int], RawEvent],
        apply_alone: Callable[[RawEvent], object],
    ) -> None:
        """`read_one` reads the event after a position; `apply_alone` takes one that is to blame."""
        self._stint, self._sets = stint, sets
        self._read_one, self._apply_alone = read_one, apply_alone

    def apply(self, extent: EventRange) -> None:
        """Applies and commits a stretch, as far as it is not asked to stop.

        Raises Halted at an event that must be tried again later, or stops the projection.
        """
        if self._stint.stopping() or not extent.events:
            return
        try:
            self._commit(extent)
        except Exception as error:
            if not (isinstance(error, _Overflow) or self._stint.session.refused(error)):
                raise
        else:
            return
        if extent.events == 1:
            self._apply_alone(self._read_one(extent.after))
            return
        middle = (extent.after + extent.through) // 2
        for part in ((extent.after, middle), (middle, extent.through)):
            self.apply(self._sets.between(*part))

    def _commit(self, extent: EventRange) -> None:
        stint = self._stint
        assert extent.last is not None
        entries: list[NewItem] = []
        with (
            stint.transaction() as held,
            nullcontext(held) if held else stint.session.transaction() as work,
        ):
            closed_for = stint.checkpoint if stint.lanes else None
            if closed_for is not None:
                entries = self._behind(closed_for, extent)
            self._sets.apply(extent, closed_for)
            advance = self._advance(extent, extent.events - len(entries))
            checkpoint = work.advance(stint.checkpoint, advance)
            if entries:
                added = work.enqueue(checkpoint, entries, advance.at)
                stint.lanes.discount(e for e in entries if e.event.position not in added)
                work.write_lanes(checkpoint, stint.lanes.begun())
        stint.lanes.commit()
        for lane, count in Counter(entry.lane for entry in entries).items():
            stint.emit(Queued(*stint.names, lane, count))
        stint.committed(checkpoint, [])

    def _behind(self, checkpoint: Checkpoint, extent: EventRange) -> list[NewItem]:
        """What has to wait in closed lanes."""
        stint, limits = self._stint, self._stint.definition.policy.limits
        entries, size_bytes = [], 0
        for event in self._sets.waiting(checkpoint, extent):
            size_bytes += len(event.data) + len(event.metadata)
            is_much = size_bytes > BATCH_BYTES and extent.events > 1
            if is_much or stint.lanes.overflow(event.stream, limits) is not None:
                raise _Overflow
            entry = NewItem(event, event.stream, "pending")
            stint.lanes.add(entry)
            entries.append(entry)
        return entries

    def _advance(self, extent: EventRange, applied: int) -> Advance:
        assert extent.last is not None
        advance = self._stint.advance(applied, None)
        event_id, event_type = extent.last
        return dataclasses.replace(
            advance,
            position=extent.through,
            last_event_id=event_id,
            last_event_type=event_type,
        )
