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


class Reader:
    """Reads batches from a feed."""

    def __init__(
        self, source: Source, stopping: Callable[[], bool], *, batch_factor: int = 1
    ) -> None:
        """`batch_factor`: so many times as many events as usual make a batch."""
        self._source, self._stopping, self._batch_factor = source, stopping, batch_factor
        self._mean_event_bytes = FIRST_GUESS_BYTES

    def read(self, after: int) -> Read:
        """The next batch."""
        events: list[RawEvent] = []
        size, through = 0, after
        most = BATCH_EVENTS * self._batch_factor
        while len(events) < most and size < BATCH_BYTES and not self._stopping():
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

    def _chunk_limit(self) -> int:
        """Fewer events at a time when they are large."""
        fitting = int(BATCH_BYTES / 4 / max(self._mean_event_bytes, 1.0))
        return max(1, min(CHUNK_EVENTS, fitting))
