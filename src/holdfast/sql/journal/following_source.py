"""The journal for a runner that may have nothing to do for long, and has many beside it."""

from __future__ import annotations

import math
import time

from holdfast.errors import StoreUnavailable
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.source import Chunk
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.store.head_poller import HeadPoller, HeadSnapshot
from holdfast.sql.store.session import SqlSession
from holdfast.sql.store.shared_reads import SharedReads

REST_SECONDS = 10.0
"""A runner that has had nothing to do for so long lets go of its connection."""


class FollowingSource:
    """The feed, read when there may be something to read, and not on every poll.

    Polls are answered by looks, which runners share. A ring of the bell is news: then the feed is
    read at once, unless the runner has no connection, and looks first.
    """

    def __init__(
        self, session: SqlSession, looks: HeadPoller, recent: SharedReads | None = None
    ) -> None:
        """`recent`: what others of the process have read; None if there are no others."""
        self._session, self._looks, self._recent = session, looks, recent
        self._bell = session.database.bell
        self._source = JournalSource(session, reads_ahead=recent is None)
        self._read_to: int | None = None
        """How far its last read went; None if that was another's."""
        self._heard = self._read_at = self._bell.rings
        self._busy_at = time.monotonic()
        self._is_idle = False
        self._name, self._beat = object(), -math.inf
        self._pause_seconds = 0.0

    def read(self, after: int, limit: int) -> Chunk:
        if self._has_nothing(after):
            return Chunk(())
        if self._recent is None:
            chunk = self._source.read(after, limit)
        else:
            chunk = self._read_with_others(self._recent, after, limit)
        self._note(is_idle=not chunk.events)
        return chunk

    def _read_with_others(self, recent: SharedReads, after: int, limit: int) -> Chunk:
        """What others have read, or what they may take.

        Reads ahead where they don't: of those who go along, each would read the same.
        """
        # The server may hold a lock until then, for which others wait that we may wait for.
        self._source.take_in()
        self._source.reads_ahead = self._read_to == after and not recent.is_shared(after)
        self._read_to = None

        def read() -> Chunk:
            chunk = self._source.read(after, limit)
            if chunk.events:
                self._read_to = chunk.events[-1].position
            return chunk

        chunk, self._heard = recent.read(after, limit, read)
        self._read_at = self._heard
        return chunk

    def extent(self, after: int, limit: int) -> EventRange:
        if self._has_nothing(after):
            return EventRange(after, after, 0, None)
        extent = self._source.extent(after, limit)
        self._note(is_idle=not extent.events)
        return extent

    def head(self) -> int:
        return self._source.head()

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        self.forget()
        return self._source.check(checkpoint)

    def assure(self) -> None:
        """The journal is always the same."""

    def forget(self) -> None:
        self._source.forget()
        if self._recent is not None:
            self._recent.clear()

    def wait(self, timeout_seconds: float) -> bool:
        self._rest()
        self._pause_seconds = timeout_seconds
        timeout_seconds -= self._wait_for_beat(timeout_seconds)
        has_rung = self._looks.wait(self._heard, timeout_seconds)
        if self._recent is not None:
            self._beat = self._recent.pace.begin(self._name)
        self._heard = self._bell.rings
        self._is_idle = self._is_idle or not has_rung
        # Who is paused does not read, and asks for nothing but the epoch.
        self._session.look = self._look() if self._is_idle else None
        return has_rung

    def _wait_for_beat(self, most_seconds: float) -> float:
        """Waits for the next beat, where there are many runners; returns for how long.

        Whoever has found nothing hears what comes next at once.
        """
        if self._recent is None or self._is_idle:
            return 0.0
        seconds = min(self._recent.pace.left_seconds(self._beat), most_seconds)
        if seconds > 0:
            time.sleep(seconds)
        return seconds

    def _has_nothing(self, after: int) -> bool:
        """Whether a look has shown that there is nothing to read."""
        look = self._look() if self._is_idle else None
        if look is not None and look.head <= after:
            self._heard = self._read_at = look.rings
            self._session.look = look
            return True
        self._session.look = None
        self._heard = self._read_at = self._bell.rings
        return False

    def _note(self, *, is_idle: bool) -> None:
        self._is_idle = is_idle
        if not is_idle:
            self._busy_at = time.monotonic()

    def _look(self) -> HeadSnapshot | None:
        """What is known without asking for oneself; None where that is better."""
        if self._bell.rings != self._read_at and not self._session.is_resting:
            return None
        try:
            # Those who wake up together share a look; it is never as old as the one before.
            return self._looks.take(self._pause_seconds / 2)
        except StoreUnavailable:
            return None  # Whoever then asks for himself says what is wrong.

    def _rest(self) -> None:
        """Lets go of the connection, after a time without news."""
        if self._session.is_resting or time.monotonic() - self._busy_at < REST_SECONDS:
            return
        if not self._looks.keeps_connected(self._session):
            self._session.rest()
