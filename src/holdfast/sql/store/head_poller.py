"""One look at the store for all runners of a process that have nothing to do, or stand by."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakSet

from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.sql.database import Connection, Database
from holdfast.sql.forks import graveyard

KEPT_CONNECTIONS = 3
"""So many idle runners keep their connections: in a small worker, all of them."""

LEASES_SECONDS = 0.1
"""So long those who stand by share what was seen of the leases."""


@dataclass(frozen=True, slots=True)
class HeadSnapshot:
    """Where the journal ended at some moment, and each checkpoint's epoch and revision then."""

    head: int
    checkpoints: Mapping[int, tuple[int, int]]
    at: float
    """By the monotonic clock, before anything was read."""
    rings: int
    """How often the bell had rung by then."""

    def shows(self, checkpoint: Checkpoint) -> bool:
        """Whether nobody had taken over by then, and nobody had changed anything."""
        return self.checkpoints.get(checkpoint.id) == (checkpoint.epoch, checkpoint.revision)


class HeadPoller:
    """The last look, on a connection of its own; the first who finds it too old takes another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._last: HeadSnapshot | None = None
        self._kept: WeakSet[object] = WeakSet()
        self._awaited: set[int] = set()
        self._leased: set[int] = set()
        self._leased_at = -LEASES_SECONDS

    def take(self, max_age_seconds: float) -> HeadSnapshot:
        """A look that is not older than that, nor than the last ring of the bell."""
        with self._lock:
            last, not_before = self._last, time.monotonic() - max_age_seconds
            if last is None or last.at < not_before or last.rings != self._database.bell.rings:
                last = self._last = self._look()
            return last

    def wait(self, heard: int, timeout_seconds: float) -> bool:
        """Waits for the bell, at most until the last look is so old; returns whether it rang.

        So those who wait equally long wake up together, and share the next one.
        """
        seconds = timeout_seconds
        if (last := self._last) is not None:
            left = last.at + timeout_seconds - time.monotonic()
            seconds = left if 0 < left < timeout_seconds else timeout_seconds
        return self._database.bell.wait(heard, seconds)

    def is_leased(self, checkpoint: Checkpoint) -> bool:
        """Whether somebody had the projection's lease a moment ago."""
        with self._lock:
            now = time.monotonic()
            if checkpoint.id not in self._awaited or now - self._leased_at >= LEASES_SECONDS:
                self._awaited.add(checkpoint.id)
                self._leased = self._database.leased(self._awaited)
                self._leased_at = now
            return checkpoint.id in self._leased

    def keeps_connected(self, session: object) -> bool:
        """Whether an idle session is one of the few that keep their connections."""
        with self._lock:
            if len(self._kept) < KEPT_CONNECTIONS:
                self._kept.add(session)
            return session in self._kept

    def close(self) -> None:
        with self._lock:
            self._close()

    def forked(self) -> None:
        """In the child: the connection and the sessions are the parent's."""
        graveyard.append(self._connection)
        self._lock = threading.Lock()
        self._connection = self._last = None
        self._kept, self._awaited = WeakSet(), set()

    def _look(self) -> HeadSnapshot:
        at, rings = time.monotonic(), self._database.bell.rings
        try:
            if self._connection is None:
                self._connection = self._database.connect()
            rows = self._connection.run("look")
        except BaseException:
            self._close()
            raise
        checkpoints = {id_: (epoch, revision) for _, id_, epoch, revision in rows}
        return HeadSnapshot(int(rows[0][0]), checkpoints, at, rings)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._last = None
