"""Reading a feed in batches whose memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from holdfast.model.event import RawEvent
from holdfast.runtime.store.source import Source

CHUNK_EVENTS = 1_000
"""Events per read: what is done with makes room that is still in the processor's cache."""

BATCH_EVENTS = 10_000
"""Events per transaction while catching up; when live, what is there."""

FOLD_FACTOR = 50
"""So many times as many, where they are folded: it costs more to write a row than to fold an event
into it, and no transaction is open meanwhile."""

CAREFUL_EVENTS = 10_000
"""No more than so many where the last process has died: if this one does, too, those that come are
tried one by one."""

BATCH_SECONDS = 2.0
"""A batch that takes longer makes the next one smaller; where events are folded, twice as long."""

BATCH_BYTES = 16 * 2**20
"""Bytes of payload and metadata that a batch gathers, where it is read before it is applied."""

FOLD_BYTES = 64 * 2**20
"""The same where they are folded as they are read: of those that have to wait, all is kept."""

FIRST_GUESS_BYTES = 16_384.0
"""How large an event is taken to be before one was read."""

_data, _metadata = attrgetter("data"), attrgetter("metadata")


def most_events(*, folds: bool) -> int:
    """How many events a batch may have."""
    return BATCH_EVENTS * (FOLD_FACTOR if folds else 1)


class BatchReader:
    """Reads batches from a feed."""

    def __init__(
        self,
        source: Source,
        stopping: Callable[[], bool],
        *,
        folds: bool,
        is_careful: Callable[[], bool] = lambda: False,
    ) -> None:
        """`folds`: what is read is folded in memory before anything is written."""
        self.source, self.stopping, self._is_careful = source, stopping, is_careful
        self._most_events = self._batch_events = most_events(folds=folds)
        self._most_seconds = BATCH_SECONDS * (2 if folds else 1)
        self._fitting_events = 1
        self._fit(FIRST_GUESS_BYTES)

    def read(self, after: int, *, keeps: bool) -> Reading:
        """The next batch, of which nothing is read yet. `keeps`: all of it is kept in memory."""
        return Reading(self, after, BATCH_BYTES if keeps else FOLD_BYTES)

    @property
    def batch_events(self) -> int:
        """How many events the next batch may have."""
        return min(self._batch_events, CAREFUL_EVENTS) if self._is_careful() else self._batch_events

    @property
    def is_narrow(self) -> bool:
        """Whether batches are as small as they get."""
        return self._batch_events <= CHUNK_EVENTS

    def narrow(self) -> None:
        """The next batches are small, and grow again."""
        self._batch_events = CHUNK_EVENTS

    def took(self, events: int, seconds: float) -> None:
        """How long a batch has taken; those that come are smaller if that was long."""
        if seconds > self._most_seconds:
            self._batch_events = max(CHUNK_EVENTS, min(events, self._batch_events) // 2)
        elif seconds < self._most_seconds / 4 and events >= self._batch_events:
            self._batch_events = min(2 * self._batch_events, self._most_events)

    def chunk_limit(self) -> int:
        """Fewer events at a time when they are large."""
        return min(CHUNK_EVENTS, self._fitting_events)

    def size_bytes(self, events: Sequence[RawEvent]) -> int:
        """The size of a chunk's payloads, from which the next chunk's limit follows."""
        size = sum(map(len, map(_data, events))) + sum(map(len, map(_metadata, events)))
        if events:
            self._fit(size / len(events))
        return size

    def _fit(self, mean_event_bytes: float) -> None:
        """How many events are read at a time, by powers of two.

        It falls at once and rises late, so that it seldom changes: whoever reads ahead counts on
        it.
        """
        fitting = max(1, int(BATCH_BYTES / 4 / max(mean_event_bytes, 1.0)))
        if not self._fitting_events <= fitting < 3 * self._fitting_events:
            self._fitting_events = 1 << (fitting.bit_length() - 1)


class Reading:
    """One batch, read chunk by chunk while it is applied: what is done with makes room at once.

    How far it goes is known when it has been gone through. `at_head`: the feed has no more; `held`:
    more is not settled. `through`: nothing more will come up to this position.
    """

    def __init__(self, reader: BatchReader, after: int, most_bytes: int) -> None:
        self._reader, self._most_bytes = reader, most_bytes
        self.through = self.last = after
        """`last`: the position of the last event."""
        self.at_head = self.held = False

    def __iter__(self) -> Iterator[Sequence[RawEvent]]:
        reader, count, size = self._reader, 0, 0
        most = reader.batch_events
        while count < most and size < self._most_bytes and not reader.stopping():
            limit = min(reader.chunk_limit(), most - count)
            chunk = reader.source.read(self.through, limit)
            events = chunk.events
            self.held = chunk.held
            self.at_head = chunk.held or (len(events) < limit and not chunk.more)
            self.through = max(self.through, chunk.through)
            if not events:
                return  # There is no more, or it takes long to find some.
            self.last = events[-1].position
            self.through = max(self.through, self.last)
            count += len(events)
            size += reader.size_bytes(events)
            yield events
            if self.at_head:
                return
