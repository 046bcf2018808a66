"""Fast path: events with no closed lane, no pending retry and no earlier decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from operator import attrgetter

from holdfast.model.definition import Fold
from holdfast.model.event import RawEvent
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.engines.engine import Batch

QUICK_EVENTS = 8
QUICK_SECONDS = 0.001
"""While so many events take less than this, the clock is looked at after so many."""

FREE_EVENTS = 128
"""Events whose streams are looked up among the closed lanes at once; when one fails, those behind
it are again."""

_stream = attrgetter("stream")


class FastPath:
    """Events of a batch, up to the first of which something is known, or that has to wait.

    They are taken one by one while they are applied. `at`: how far, when no event has failed. It
    ends when its time is up, when the batch is full, or when the runner is asked to stop.
    """

    def __init__(
        self,
        stint: Leadership,
        batch: Batch,
        events: Sequence[RawEvent],
        *,
        at: int,
        until: float,
        ruled: Collection[int],
    ) -> None:
        """`ruled`: the positions of events about which the policy has been asked."""
        self._stint, self._batch, self._events = stint, batch, events
        self.at, self._until, self._ruled = at, until, ruled
        self._by_stream = stint.definition.lanes_are_streams

    def __iter__(self) -> Iterator[RawEvent]:
        """Every event comes through here, so it asks nothing that can be known beforehand."""
        stint, batch, events, at = self._stint, self._batch, self._events, self.at
        monotonic, stopping = stint.clock.monotonic, stint.stopping
        folds = isinstance(stint.definition.kind, Fold)
        ledger = None if stint.definition.foreign is None else stint.ledger
        stint.ledger.begin_run()
        count_free = self._count_free()
        looked, few, free_until = monotonic(), 1, 0 if count_free else len(events)
        while at < len(events):
            if count_free is not None and at >= free_until:
                ahead = FREE_EVENTS if self._by_stream else few
                free_until = at + count_free(events[at : at + ahead])
                if free_until == at:
                    return
            part = events[at : min(at + few, free_until)]
            after = at + len(part)
            if ledger is None:
                yield from part
                at = after
            else:
                at += yield from ledger.plain(part)
            self.at = at
            if at < after:
                return
            now = monotonic()
            if now >= self._until or batch.is_full or stopping():
                return
            few = QUICK_EVENTS if folds and now - looked < QUICK_SECONDS else 1
            looked = now

    def _count_free(self) -> Callable[[Sequence[RawEvent]], int] | None:
        """What counts the first events of which nothing is known, and whose lanes are open.

        None: that is all of them. No lane is closed before the next event with which something is
        the matter.
        """
        lanes, is_marked = self._stint.lanes, self._stint.marked(self._ruled)
        if is_marked is None and not lanes:
            return None
        at_once = self._by_stream and is_marked is None

        def is_free(event: RawEvent) -> bool:
            if is_marked is not None and is_marked(event.position):
                return False
            return not (lanes and self._is_closed(event))

        def count(events: Sequence[RawEvent]) -> int:
            if at_once and lanes.are_open(map(_stream, events)):
                return len(events)
            return sum(1 for _ in takewhile(is_free, events))

        return count

    def _is_closed(self, event: RawEvent) -> bool:
        """Whether something waits in the event's lane, or may."""
        stint = self._stint
        if self._by_stream and event.stream not in stint.lanes:
            return False
        if not (stint.ledger.counts_all or stint.definition.handles(event.type)):
            return False
        return stint.lanes.get(self._batch.lane_of(event)) is not None or stint.is_held(event)
