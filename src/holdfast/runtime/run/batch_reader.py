"""Reads a feed in batches whose memory is bounded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import assert_never

from holdfast.model.definition import Fold, Handle, Kind, Publish, SqlRanges
from holdfast.model.event import RawEvent
from holdfast.runtime.apply.narrow import Narrowing
from holdfast.runtime.failure.suspects import Suspects
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.ranges import EventRange, RangeSource
from holdfast.runtime.store.source import Source

FIRST_GUESS_BYTES = 16_384.0
"""The assumed size of an event before one was read."""

_position, _data, _metadata = attrgetter("position"), attrgetter("data"), attrgetter("metadata")


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Events to be applied next.

    `through`: no event will appear up to this position. `at_head`: the feed has no more; `held`:
    more is not settled. `ends`: the transaction ends with these events.
    """

    events: Sequence[RawEvent]
    through: int
    at_head: bool
    held: bool
    ends: bool

    @property
    def count(self) -> int:
        return len(self.events)

    @property
    def last(self) -> int:
        """The position behind which everything of the batch is done."""
        return self.events[-1].position if self.events else self.through


@dataclass(frozen=True, slots=True)
class RangeBatch:
    """A range of events that the database applies next."""

    range: EventRange
    at_head: bool

    @property
    def count(self) -> int:
        return self.range.events

    @property
    def through(self) -> int:
        return self.range.through

    @property
    def last(self) -> int:
        return self.range.through

    @property
    def held(self) -> bool:
        return self.range.held


class BatchReader:
    """Reads the batches of one runner.

    Events that are folded come chunk by chunk, and several batches make one transaction: nothing is
    kept of them but their rows. Other events come in one batch a transaction, and are kept until
    they are committed, so that what there was no time for, and what failed, is not read again.
    """

    def __init__(
        self,
        source: Source,
        kind: Kind,
        *,
        limits: RuntimeLimits,
        suspects: Suspects,
        stopping: Callable[[], bool],
    ) -> None:
        self._source, self._limits, self._suspects = source, limits, suspects
        self._stopping = stopping
        self._folds = isinstance(kind, Fold)
        self._size = Narrowing(most_events(kind, limits))
        self._slow_seconds = limits.slow_fold_seconds if self._folds else limits.slow_batch_seconds
        self._fitting_events = 1
        self._fit(FIRST_GUESS_BYTES)
        self._events: list[RawEvent] = []
        """Events that were read, after `_after` and through `_through`, and are not committed."""
        self._after = self._through = -1
        self._at_head = self._held = False
        self._transaction_events = self._transaction_bytes = 0
        self.refused_after: int | None = None
        """After which position a single event was refused last."""

    def next(self, after: int, *, begins: bool, may_fold_on: bool = True) -> FeedBatch:
        """The events after a position. `begins`: with them a transaction begins.

        Without `may_fold_on`, the transaction ends with them.
        """
        if begins:
            self._transaction_events = self._transaction_bytes = 0
        self._drop_until(after)
        if not self._events:
            self._transaction_bytes += self._fill()
        room = self.limit - self._transaction_events
        count = min(len(self._events), room)
        if self._suspects.has_any:
            count = min(count, self._suspects.most_together(self._events))
        events = self._events[:count]
        is_all = count == len(self._events)
        self._transaction_events += count
        at_head = is_all and self._at_head
        is_full = (
            self._transaction_events >= self.limit
            or self._transaction_bytes >= self._limits.fold_bytes
        )
        return FeedBatch(
            events,
            through=self._through if is_all else events[-1].position,
            at_head=at_head,
            held=is_all and self._held,
            ends=at_head or is_full or not (self._folds and may_fold_on),
        )

    def next_range(self, after: int) -> RangeBatch:
        """The range of the events after a position, which are not read."""
        assert isinstance(self._source, RangeSource)
        limit = self._size.limit
        found = self._source.next_range(after, limit)
        return RangeBatch(found, at_head=found.held or found.events < limit)

    def took(self, events: int, seconds: float) -> None:
        """A transaction took this long: the next ones are smaller if that was too long."""
        if seconds > self._slow_seconds:
            self._size.took_long(events, least=self._limits.chunk_events)
        elif self._size.limit < self._size.most and seconds < self._slow_seconds / 4:
            self._size.succeeded(events)

    def narrow(self, after: int, tried: int, *, good: int | None = None) -> bool:
        """Makes the next transactions smaller, after one behind a position was refused.

        False: the one event that was tried is to blame.
        """
        if self._size.refused(tried, good=good):
            return True
        self.refused_after = after
        return False

    @property
    def is_narrow(self) -> bool:
        """Whether the culprit of a refused transaction may be among the next events."""
        return self._size.limit < self._limits.chunk_events

    @property
    def limit(self) -> int:
        """The maximum of events of the next transaction."""
        limit, suspects = self._size.limit, self._suspects
        if suspects.has_any and suspects.is_careful:
            return min(limit, self._limits.careful_events)
        return limit

    def _fill(self) -> int:
        """Reads one chunk to be folded, or as many as a transaction may have; returns the size."""
        size, limits = 0, self._limits
        while not self._stopping():
            wanted = max(1, self.limit - len(self._events))
            limit = min(limits.chunk_events, self._fitting_events, wanted)
            chunk = self._source.read(self._through, limit)
            self._held = chunk.held
            self._at_head = chunk.held or (len(chunk.events) < limit and not chunk.more)
            self._through = max(self._through, chunk.through)
            if not chunk.events:
                break  # There is no more, or it takes long to find some.
            self._through = max(self._through, chunk.events[-1].position)
            self._events += chunk.events
            size += self._fit_to(chunk.events)
            is_enough = len(self._events) >= self.limit or size >= limits.batch_bytes
            if self._at_head or self._folds or is_enough:
                break
        return size

    def _drop_until(self, after: int) -> None:
        """Keeps the events after a position, if they are those that come next."""
        if not self._after <= after <= self._through:
            self._forget(after)
        elif after > self._after:
            del self._events[: bisect_right(self._events, after, key=_position)]
            self._after = after
        if not self._events:
            self._forget(after)

    def _forget(self, after: int) -> None:
        self._events = []
        self._after = self._through = after
        self._at_head = self._held = False

    def forget(self) -> None:
        """An operator may have changed what was read."""
        self._forget(-1)

    def _fit_to(self, events: Sequence[RawEvent]) -> int:
        """Adapts the next read to the size of these events, which it returns."""
        size = sum(map(len, map(_data, events))) + sum(map(len, map(_metadata, events)))
        self._fit(size / len(events))
        return size

    def _fit(self, mean_event_bytes: float) -> None:
        """Reads fewer events at a time when they are large, by powers of two.

        The number falls at once and rises late, so that it seldom changes: a read ahead counts on
        it.
        """
        fitting = max(1, int(self._limits.batch_bytes / 4 / max(mean_event_bytes, 1.0)))
        if not self._fitting_events <= fitting < 3 * self._fitting_events:
            self._fitting_events = 1 << (fitting.bit_length() - 1)


def most_events(kind: Kind, limits: RuntimeLimits) -> int:
    """The maximum of events in a transaction of a kind of projection."""
    match kind:
        case Fold():
            return limits.fold_events
        case SqlRanges():
            return limits.range_events
        case Handle() | Publish():
            return limits.batch_events
        case _:
            assert_never(kind)
