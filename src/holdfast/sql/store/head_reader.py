"""The reads of the journal that all runners of a process share, and the polls of idle runners.

Runners that follow the journal are mostly at the same position. The first one that wants the next
events reads them on a connection of the process; the others wait for that read and take its events.
A runner that is behind the kept events reads for itself. Each runner decodes payloads by itself,
since handlers may change what they get.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from weakref import WeakSet

from holdfast.errors import StoreUnavailable
from holdfast.model.event import RawEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.source import Chunk
from holdfast.sql.database import Connection, Database

KEPT_BYTES = 64 * 2**20
"""Maximum size of the kept events. A runner that writes many rows falls behind for a moment;
without these events it would read for itself from then on."""

IDLE_BYTES = 4 * 2**20
"""Maximum size of the kept events when a runner has come to the head."""

EVENT_BYTES = 600
"""Approximate size of an event without its payload and metadata."""

KEPT_CONNECTIONS = 3
"""Maximum of idle runners that keep their connections: all runners of a small worker."""

LEASES_SECONDS = 0.1
"""Maximum age of the leases that standby runners know."""

_position = attrgetter("position")


@dataclass(frozen=True, slots=True)
class HeadSnapshot:
    """The head of the journal at some moment, and each checkpoint's epoch and revision then."""

    head: int
    checkpoints: Mapping[int, tuple[int, int]]
    taken_at: float
    """By the monotonic clock, before anything was read."""
    wakes: int
    """The count of wake-ups at that time."""

    def shows(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint was unchanged: no takeover, and no change by an operator."""
        return self.checkpoints.get(checkpoint.id) == (checkpoint.epoch, checkpoint.revision)


class HeadReader:
    """The newest events and the last snapshot of the head, read on one shared connection."""

    def __init__(self, database: Database) -> None:
        self._database, self._wake = database, database.wake
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._snapshot: HeadSnapshot | None = None
        self._connected: WeakSet[object] = WeakSet()
        self._standing_by: set[int] = set()
        self._leased: set[int] = set()
        self._leased_at = -LEASES_SECONDS
        self._events: list[RawEvent] = []
        """The kept events: all of the journal's after `_start`, through `_end`."""
        self._start = self._end = -1
        self._bytes = 0
        self._wakes = -1
        """The count of wake-ups before the last read."""
        self._is_held = self._is_full = False
        """How the last read ended."""

    def read(self, after: int, limit: int) -> tuple[Chunk, int] | None:
        """The events after a position, and the count of wake-ups before they were read.

        None: the runner is behind the kept events, and reads for itself. What has come since the
        read is announced by another wake-up, or found by the next poll.
        """
        with self._lock:
            if after > self._end:
                self._forget(after)
            if after >= self._start and self._end - after < limit and self._has_news:
                self._extend(limit)
            if after < self._start:
                return None  # Also if the read was too large to be kept.
            start = bisect_right(self._events, after, key=_position)
            events = self._events[start : start + limit]
            is_end = start + len(events) == len(self._events)
            return Chunk(events, held=self._is_held and is_end, more=not is_end), self._wakes

    def covers(self, after: int) -> bool:
        """Whether a runner at this position may share the kept events."""
        return after >= self._start

    def snapshot(self, max_age_seconds: float) -> HeadSnapshot:
        """A snapshot that is not older than this, and not older than the last wake-up."""
        with self._lock:
            last, not_before = self._snapshot, time.monotonic() - max_age_seconds
            if last is None or last.taken_at < not_before or last.wakes != self._wake.count:
                taken_at, wakes = time.monotonic(), self._wake.count
                rows = self._run("head_and_epochs")
                checkpoints = {id_: (epoch, revision) for _, id_, epoch, revision in rows}
                last = HeadSnapshot(int(rows[0][0]), checkpoints, taken_at, wakes)
                self._snapshot = last
            return last

    def is_leased(self, checkpoint: Checkpoint) -> bool:
        """Whether some process had the projection's lease a moment ago."""
        with self._lock:
            now = time.monotonic()
            if checkpoint.id not in self._standing_by or now - self._leased_at >= LEASES_SECONDS:
                self._standing_by.add(checkpoint.id)
                self._leased = self._database.leased(self._standing_by)
                self._leased_at = now
            return checkpoint.id in self._leased

    def keeps_connected(self, session: object) -> bool:
        """Whether an idle session may keep its connection."""
        with self._lock:
            if len(self._connected) < KEPT_CONNECTIONS:
                self._connected.add(session)
            return session in self._connected

    def rest(self) -> None:
        """A runner waits: drops old events, and a read ahead that would keep the server's locks."""
        if self._is_full or self._bytes > IDLE_BYTES:
            with self._lock:
                self._forget_ahead()
                self._keep(IDLE_BYTES)

    def forget(self) -> None:
        """An operator may have changed what was read, or restored another copy."""
        with self._lock:
            self._forget()
            self._forget_ahead()

    def close(self) -> None:
        with self._lock:
            self._close()

    @property
    def _has_news(self) -> bool:
        """Whether there may be events behind the kept ones."""
        if self._is_held or self._is_full or self._wakes != self._wake.count:
            return True
        return self._snapshot is not None and self._snapshot.head > self._end

    def _extend(self, limit: int) -> None:
        self._wakes = self._wake.count
        try:
            chunk = self._connect().settled(self._end, limit, ahead=True)
        except BaseException:
            self._close()
            raise
        self._is_held, self._is_full = chunk.held, len(chunk.events) == limit
        if chunk.events:
            self._events.extend(chunk.events)
            self._end = chunk.events[-1].position
            self._bytes += sum(map(_size_bytes, chunk.events))
            self._keep(KEPT_BYTES)

    def _keep(self, max_bytes: int) -> None:
        """Drops the older half of the events until the rest is small enough."""
        while self._bytes > max_bytes and self._events:
            count = (len(self._events) + 1) // 2
            self._bytes -= sum(map(_size_bytes, self._events[:count]))
            self._start = self._events[count - 1].position
            del self._events[:count]

    def _forget(self, after: int = -1) -> None:
        self._events = []
        self._start = self._end = after
        self._bytes, self._wakes = 0, -1
        self._is_held = self._is_full = False

    def _forget_ahead(self) -> None:
        if self._connection is not None:
            try:
                self._connection.forget_ahead()
            except StoreUnavailable:
                self._close()

    def _run(self, name: str) -> list[tuple[int, ...]]:
        try:
            return self._connect().run(name)
        except BaseException:
            self._close()
            raise

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._snapshot = None


def _size_bytes(event: RawEvent) -> int:
    return EVENT_BYTES + len(event.data) + len(event.metadata)
