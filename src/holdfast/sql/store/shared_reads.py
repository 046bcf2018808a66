"""What was read of the journal last, for all runners of a process.

Those who follow the same journal are mostly at the same place: one of them reads, the others have
what it has read. Payloads are decoded by each for itself, since handlers may change what they get.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.model.event import RawEvent
from holdfast.runtime.store.source import Chunk
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.store.wake_pacer import WakePacer

KEPT_BYTES = 16 * 2**20
"""So many bytes are kept, at most."""

EVENT_BYTES = 600
"""What an event takes beside its payload and metadata, about."""


@dataclass(slots=True)
class _Kept:
    """A chunk that was read: after which position, and whether it goes to the journal's end.

    `is_taken`: by somebody else, too.
    """

    after: int
    chunk: Chunk
    is_last: bool
    rings: int
    """How often the bell had rung before it was read."""
    size_bytes: int
    is_taken: bool

    @property
    def end(self) -> int:
        """The position of its last event."""
        return self.chunk.events[-1].position


class _Flight:
    """A read that is on its way, for those who want the same."""

    def __init__(self) -> None:
        self.landed = threading.Event()
        self.is_joined = False
        self.result: tuple[Chunk, int] | None = None


class SharedReads:
    """The last chunks, and the reads that are on their way."""

    def __init__(self, bell: WakeSignal) -> None:
        self._bell, self.pace = bell, WakePacer()
        self._lock = threading.Lock()
        self._kept: deque[_Kept] = deque()
        self._by_after: dict[int, _Kept] = {}
        self._by_end: dict[int, _Kept] = {}
        self._afters: list[int] = []
        """The keys of `_by_after`, in order."""
        self._size_bytes = 0
        self._flights: dict[tuple[int, int], _Flight] = {}

    def read(self, after: int, limit: int, read: Callable[[], Chunk]) -> tuple[Chunk, int]:
        """What comes after a position, and how often the bell had rung before it was read.

        What has come since then is announced by another ring, or found by the next poll.
        """
        with self._lock:
            found = self._find(after, limit)
            if found is not None:
                return found
            flight = self._flights.get((after, limit))
            joins = flight is not None
            if flight is None:
                flight = self._flights[after, limit] = _Flight()
            flight.is_joined = joins
        if joins:
            flight.landed.wait()
            if flight.result is not None:
                return flight.result
            return self._read(read)  # Whoever reads for himself learns what is wrong.
        try:
            flight.result = self._read(read)
            with self._lock:
                if self._flights.get((after, limit)) is flight:
                    self._keep(after, limit, *flight.result, is_taken=flight.is_joined)
            return flight.result
        finally:
            with self._lock:
                if self._flights.get((after, limit)) is flight:
                    del self._flights[after, limit]
            flight.landed.set()

    def is_shared(self, through: int) -> bool:
        """Whether others have taken what was read up to a position."""
        with self._lock:
            kept = self._by_end.get(through)
            return kept is not None and kept.is_taken

    def clear(self) -> None:
        """People may have changed what was read, or restored another copy."""
        with self._lock:
            self._forget()

    def forked(self) -> None:
        """In the child: nobody lands any more."""
        self._lock = threading.Lock()
        self.pace.forked()
        self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._by_after.clear()
        self._by_end.clear()
        self._afters.clear()
        self._flights, self._size_bytes = {}, 0

    def _read(self, read: Callable[[], Chunk]) -> tuple[Chunk, int]:
        rings = self._bell.rings
        return read(), rings

    def _find(self, after: int, limit: int) -> tuple[Chunk, int] | None:
        """All that is kept after a position, chunk by chunk: whoever reads seldom is not behind.

        The rest of one that is not the last, with nothing behind it, would be taken for the
        journal's end.
        """
        found: tuple[Chunk, int] | None = None
        events: Sequence[RawEvent] = ()
        kept = self._by_after.get(after) or self._around(after)
        while kept is not None:
            kept.is_taken = True
            part = kept.chunk.events
            if kept.after < after:
                part = part[bisect_right(part, after, key=lambda event: event.position) :]
            events = [*events, *part] if events else part
            if kept.is_last or len(events) >= limit:
                # Whoever is not woken by a ring must know that it was heard since.
                is_old = kept.rings != self._bell.rings
                found = Chunk(events[:limit], more=is_old), kept.rings
            after = events[-1].position
            kept = self._by_after.get(after) if len(events) < limit else None
        return found

    def _around(self, after: int) -> _Kept | None:
        """The chunk that has begun before a position, if it ends behind it."""
        index = bisect_left(self._afters, after)
        kept = self._by_after[self._afters[index - 1]] if index else None
        return kept if kept is not None and after < kept.end else None

    def _keep(self, after: int, limit: int, chunk: Chunk, rings: int, *, is_taken: bool) -> None:
        if not chunk.events or chunk.held:
            return
        size_bytes = sum(map(_size_bytes, chunk.events))
        is_last = len(chunk.events) < limit
        kept = _Kept(after, chunk, is_last, rings, size_bytes, is_taken)
        if after not in self._by_after:
            insort(self._afters, after)
        self._by_after[after] = self._by_end[kept.end] = kept
        self._kept.append(kept)
        self._size_bytes += size_bytes
        while self._size_bytes > KEPT_BYTES:
            self._drop(self._kept.popleft())

    def _drop(self, oldest: _Kept) -> None:
        self._size_bytes -= oldest.size_bytes
        if self._by_after.get(oldest.after) is oldest:
            del self._by_after[oldest.after]
            del self._afters[bisect_left(self._afters, oldest.after)]
        if self._by_end.get(oldest.end) is oldest:
            del self._by_end[oldest.end]


def _size_bytes(event: RawEvent) -> int:
    return EVENT_BYTES + len(event.data) + len(event.metadata)
