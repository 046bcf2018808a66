"""The journal as a feed, for one runner."""

from __future__ import annotations

import time
from dataclasses import replace

from holdfast.errors import StoreUnavailable
from holdfast.model.start import Start
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.source import Chunk
from holdfast.sql.journal.positions import check_checkpoint, check_drawn, check_end
from holdfast.sql.store.checkpoints import fenced, of
from holdfast.sql.store.head_reader import HeadReader, HeadSnapshot
from holdfast.sql.store.session import SqlSession
from holdfast.sql.store.start import decide_start

REST_SECONDS = 10.0
"""Time without an event after which a runner lets go of its connection."""


class JournalSource:
    """Reads the journal on the runner's own connection, or shares the reads of others at the head.

    A runner that found nothing is idle. Its polls are answered by snapshots that all runners of the
    process share. A wake-up is news: then the journal is read at once.
    """

    def __init__(
        self,
        session: SqlSession,
        head_reader: HeadReader,
        *,
        shares: bool,
        start: Start = "start",
        clock: Clock | None = None,
    ) -> None:
        """`shares`: other runners of the process follow the journal too.

        A `start` other than "start" needs the clock.
        """
        self._start, self._clock = start, clock
        self._session, self._head_reader, self._shares = session, head_reader, shares
        self._wake = session.database.wake
        self._heard = self._read_at = self._wake.count
        """The counts of wake-ups when it waited last, and when the journal was read last."""
        self._checkpoint: Checkpoint | None = None
        self._is_idle = False
        self._is_ahead = False
        """Whether the next events are read ahead on the runner's own connection."""
        self._busy_at = time.monotonic()
        self._pause_seconds = 0.0

    def read(self, after: int, limit: int) -> Chunk:
        if self._has_nothing(after):
            return Chunk(())
        self._heard = self._read_at = self._wake.count
        chunk = self._read_shared(after, limit) if self._shares else None
        if chunk is None:
            chunk = self._session.connection.settled(after, limit, ahead=True)
            self._is_ahead = len(chunk.events) == limit
        self._note(len(chunk.events))
        return chunk

    def _read_shared(self, after: int, limit: int) -> Chunk | None:
        if self._is_ahead and self._head_reader.covers(after):
            # The server may hold a lock until its answer is received, and another runner may wait
            # for that lock: take the answer before waiting for other runners.
            self._session.connection.forget_ahead()
            self._is_ahead = False
        found = None if self._is_ahead else self._head_reader.read(after, limit)
        if found is None:
            return None
        chunk, self._heard = found
        self._read_at = self._heard
        return chunk

    def next_range(self, after: int, limit: int) -> EventRange:
        if self._has_nothing(after):
            return EventRange(after, after, 0, None)
        self._heard = self._read_at = self._wake.count
        found = self._session.connection.settled_range(after, limit)
        self._note(found.events)
        return found

    def head(self) -> int:
        return int(self._session.connection.run("head")[0][0])

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        self.forget()
        if self._start != "start":
            checkpoint = self._begin(checkpoint)
        check_drawn(self._session.connection)
        check_checkpoint(self._session.connection, checkpoint)
        self._checkpoint = checkpoint
        return checkpoint

    def _begin(self, checkpoint: Checkpoint) -> Checkpoint:
        """A projection that has passed nothing yet goes to where it begins."""
        assert self._clock is not None
        connection, position = self._session.connection, checkpoint.position
        with connection.transaction():
            begins_at = decide_start(
                connection, of(checkpoint), self._start, now=self._clock.now(), position=position
            )
            if position or not begins_at:
                return checkpoint
            whose = {"id": checkpoint.id, "epoch": checkpoint.epoch}
            rows = connection.run("begin_at", {**whose, "position": begins_at})
        if not rows:
            raise fenced(checkpoint)
        return Checkpoint(*rows[0])

    def verify(self) -> None:
        """The journal never becomes another one."""

    def has_confirmed(self, checkpoint: Checkpoint) -> bool:
        snapshot = self._fresh_snapshot()
        return snapshot is not None and snapshot.shows(checkpoint)

    def forget(self) -> None:
        self._head_reader.forget()
        if not self._session.is_resting:
            self._session.connection.forget_ahead()

    def has_news(self) -> bool:
        return self._wake.count != self._read_at

    def wait(self, timeout_seconds: float) -> bool:
        self._rest()
        self._head_reader.rest()
        self._pause_seconds = timeout_seconds
        is_woken = self._wake.wait(self._heard, timeout_seconds)
        self._heard = self._wake.count
        self._is_idle = self._is_idle or not is_woken
        return is_woken

    def _has_nothing(self, after: int) -> bool:
        """Whether a snapshot shows that there is nothing to read."""
        snapshot = self._fresh_snapshot()
        if snapshot is None or snapshot.head > after:
            return False
        if snapshot.head < after and self._checkpoint is not None:
            check_end(self._session.connection, replace(self._checkpoint, position=after))
        self._heard = self._read_at = snapshot.wakes
        return True

    def _fresh_snapshot(self) -> HeadSnapshot | None:
        """A recent snapshot for an idle runner; None if the runner should read by itself."""
        if not self._is_idle or (self.has_news() and not self._session.is_resting):
            return None
        try:
            # Half a pause: newer than the snapshot of the last poll.
            return self._head_reader.snapshot(self._pause_seconds / 2)
        except StoreUnavailable:
            return None  # The runner's own read raises it.

    def _note(self, events: int) -> None:
        self._is_idle = not events
        if events:
            self._busy_at = time.monotonic()

    def _rest(self) -> None:
        """Lets go of the connection after a time without an event."""
        if self._session.is_resting or time.monotonic() - self._busy_at < REST_SECONDS:
            return
        if not self._head_reader.keeps_connected(self._session):
            self._session.rest()
