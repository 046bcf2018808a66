"""Reading a feed in batches whose memory is bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.event import RawEvent
from holdfast.core.ports import Source

CHUNK_EVENTS = 2_000
"""Events per read."""

BATCH_EVENTS = 10_000
"""Events per transaction while catching up; when live, what is there."""

FOLD_FACTOR = 5
"""So many times as many, where they are folded: it costs more to write a row than to fold an event
into it, and nothing is locked meanwhile."""

BATCH_SECONDS = 2.0
"""A batch that takes longer makes the next one smaller."""

BATCH_BYTES = 16 * 2**20
"""Payload bytes that a batch gathers before it is applied."""


FIRST_GUESS_BYTES = 16_384.0
"""How large an event is taken to be before one was read."""


@dataclass(frozen=True, slots=True)
class Read:
    """Events to apply together. `at_head`: the feed has no more; `held`: more is not settled.

    `through`: nothing more will come up to this position.
    """

    events: list[RawEvent]
    at_head: bool
    held: bool
    through: int = 0


def most_events(*, folds: bool) -> int:
    """How many events a batch may have."""
    return BATCH_EVENTS * (FOLD_FACTOR if folds else 1)


class Reader:
    """Reads batches from a feed."""

    def __init__(self, source: Source, stopping: Callable[[], bool], *, folds: bool) -> None:
        """`folds`: what is read is folded in memory before anything is written."""
        self._source, self._stopping = source, stopping
        self._most_events = self._batch_events = most_events(folds=folds)
        self._mean_event_bytes = FIRST_GUESS_BYTES

    def read(self, after: int) -> Read:
        """The next batch."""
        events: list[RawEvent] = []
        size, through = 0, after
        while len(events) < self._batch_events and size < BATCH_BYTES and not self._stopping():
            limit = self._chunk_limit()
            chunk = self._source.read(through, limit)
            events.extend(chunk.events)
            through = max(chunk.events[-1].position if chunk.events else through, chunk.through)
            chunk_bytes = sum(len(event.data) for event in chunk.events)
            size += chunk_bytes
            if chunk.events:
                self._mean_event_bytes = chunk_bytes / len(chunk.events)
            if chunk.held or (len(chunk.events) < limit and not chunk.more):
                return Read(events, at_head=True, held=chunk.held, through=through)
            if not chunk.events:
                break  # It takes long to find some.
        return Read(events, at_head=False, held=False, through=through)

    def took(self, events: int, seconds: float) -> None:
        """How long a batch has taken; those that come are smaller if that was long."""
        if seconds > BATCH_SECONDS:
            self._batch_events = max(CHUNK_EVENTS, min(events, self._batch_events) // 2)
        elif seconds < BATCH_SECONDS / 4 and events >= self._batch_events:
            self._batch_events = min(2 * self._batch_events, self._most_events)

    def _chunk_limit(self) -> int:
        """Fewer events at a time when they are large."""
        fitting = int(BATCH_BYTES / 4 / max(self._mean_event_bytes, 1.0))
        return max(1, min(CHUNK_EVENTS, fitting))
