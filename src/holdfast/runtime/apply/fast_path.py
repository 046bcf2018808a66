"""Fast path: events with no closed lane, no pending retry and no earlier decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import attrgetter

from holdfast.model.definition import Fold
from holdfast.model.event import RawEvent
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.engines.engine import Batch

QUICK_EVENTS = 8
QUICK_SECONDS = 0.001
"""While this many folded events take less than this, the clock is read after as many."""

_stream = attrgetter("stream")


class FastPath:
    """The events of a chunk from `at` on, up to the first one that needs a closer look.

    They are taken one by one while they are applied. It ends at the time `until`, when the batch is
    full, or when the runner is asked to stop. Afterwards `at` says how far it went, if no event has
    failed.
    """

    def __init__(
        self,
        leadership: Leadership,
        batch: Batch,
        events: Sequence[RawEvent],
        *,
        at: int,
        until: float,
    ) -> None:
        self._leadership, self._batch, self._events = leadership, batch, events
        self.at, self._until = at, until
        self._lanes_are_streams = leadership.definition.lanes_are_streams

    def __iter__(self) -> Iterator[RawEvent]:
        """Each event comes through here: it asks nothing that can be known beforehand."""
        leadership, batch, events, at = self._leadership, self._batch, self._events, self.at
        monotonic, stopping = leadership.clock.monotonic, leadership.stopping
        folds = isinstance(leadership.definition.kind, Fold)
        deduplication = leadership.deduplication if leadership.definition.foreign else None
        if deduplication is not None:
            deduplication.begin_run()
        lanes, known = leadership.lanes, leadership.recovery.known
        needs_look = bool(known or lanes.resolved or lanes)
        lookup_events = leadership.limits.lookup_events
        looked_at, few, free_until = monotonic(), 1, 0 if needs_look else len(events)
        while at < len(events):
            if needs_look and at >= free_until:
                ahead = lookup_events if self._lanes_are_streams else few
                free_until = at + self._count_free(events[at : at + ahead])
                if free_until == at:
                    return
            part = events[at : min(at + few, free_until)]
            after = at + len(part)
            if deduplication is None:
                yield from part
                at = after
            else:
                at += yield from deduplication.fast_path(part)
            self.at = at
            if at < after:
                return
            now = monotonic()
            if now >= self._until or batch.is_full or stopping():
                return
            few = QUICK_EVENTS if folds and now - looked_at < QUICK_SECONDS else 1
            looked_at = now

    def _count_free(self, events: Sequence[RawEvent]) -> int:
        """How many of the first events need no closer look.

        No lane is closed before the next event that needs one.
        """
        lanes, known = self._leadership.lanes, self._leadership.recovery.known
        at_once = self._lanes_are_streams and not (known or lanes.resolved)
        if at_once and lanes.are_open(map(_stream, events)):
            return len(events)
        return sum(1 for _ in takewhile(self._is_free, events))

    def _is_free(self, event: RawEvent) -> bool:
        leadership, lanes = self._leadership, self._leadership.lanes
        if event.position in leadership.recovery.known or event.position in lanes.resolved:
            return False
        if not lanes or (self._lanes_are_streams and event.stream not in lanes):
            return True
        counts_all = leadership.deduplication.counts_all
        if not (counts_all or leadership.definition.handles(event.type)):
            return True
        if lanes.get(self._batch.lane_of(event)) is not None:
            return False
        return not leadership.waits_for_unknown_lane(event)
