"""How often runners begin anew that follow one journal in one process.

An event that comes wakes all of them, and each commits it by itself. Where they are many, the
processor and the disk do little else, and runners wait for each other more than for the database.
So they keep a beat, the slower, the more they are: each begins once in a beat, and what comes
meanwhile is read and committed in the next. An event that comes when none has come for a while is
not delayed.
"""

from __future__ import annotations

import threading
import time
from weakref import WeakSet

SHARE_SECONDS = 0.0025
"""A beat has so much for each runner: together they begin 400 times a second, at most."""

LONGEST_SECONDS = 0.1


class Pace:
    """The pace of all runners that follow one journal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followers: WeakSet[object] = WeakSet()
        self._beat = -LONGEST_SECONDS
        """When it began, by the monotonic clock."""

    def join(self, follower: object) -> None:
        """One more, until it is gone."""
        with self._lock:
            self._followers.add(follower)

    def begin(self) -> float:
        """A follower begins; returns its beat, which is a new one if the last is over."""
        with self._lock:
            now = time.monotonic()
            if now >= self._beat + self._length_seconds:
                self._beat = now
            return self._beat

    def left_seconds(self, beat: float) -> float:
        """How long it is until the end of a beat."""
        return max(0.0, beat + self._length_seconds - time.monotonic())

    def forked(self) -> None:
        """In the child: the followers are the parent's."""
        self._lock, self._followers = threading.Lock(), WeakSet()

    @property
    def _length_seconds(self) -> float:
        count = len(self._followers)
        return min(count * SHARE_SECONDS, LONGEST_SECONDS) if count > 1 else 0.0
