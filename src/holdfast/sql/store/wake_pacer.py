"""How often the runners of an app begin anew that follow its journal.

An event that comes wakes all of them, and each commits it by itself. Where they are many, the
processor and the disk do little else, and runners wait for each other more than for the database.
So they keep a beat, the slower, the more they are: each begins once in a beat, and what comes
meanwhile is read and committed in the next. An event that comes when none has come for a while is
not delayed.
"""

from __future__ import annotations

import math
import threading
import time

SHARE_SECONDS = 0.0025
"""A beat has so much for each runner: together they begin 400 times a second, at most."""

LONGEST_SECONDS = 0.1
"""No beat is longer, however many they are."""

COUNTED_SECONDS = 1.0
"""Whoever has not begun for so long is not counted: it may be gone."""


class WakePacer:
    """The pace of all runners that follow one journal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: dict[object, float] = {}
        """When each runner has begun, by the monotonic clock."""
        self._beat = -math.inf
        """When the last beat has begun."""

    def begin(self, runner: object) -> float:
        """A runner begins; returns its beat, which is a new one if the last is over."""
        with self._lock:
            now = self._began[runner] = time.monotonic()
            if now >= self._beat + self._length_seconds:
                self._beat = now
                self._began = {
                    other: at for other, at in self._began.items() if now - at <= COUNTED_SECONDS
                }
            return self._beat

    def left_seconds(self, beat: float) -> float:
        """How long it is until the end of a beat."""
        return max(0.0, beat + self._length_seconds - time.monotonic())

    def forked(self) -> None:
        """In the child: the runners are the parent's."""
        self._lock, self._began = threading.Lock(), {}

    @property
    def _length_seconds(self) -> float:
        count = len(self._began)
        return min(count * SHARE_SECONDS, LONGEST_SECONDS) if count > 1 else 0.0
