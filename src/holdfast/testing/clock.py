"""A clock that stands still."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)

CHECK_SECONDS = 0.005
"""Interval at which a wait checks whether the clock was advanced."""


class FixedClock:
    """Shows the same time until it is told to advance: `App(url, clock=FixedClock())`.

    A timeout by this clock, such as that of `App.wait_for`, only ends when the clock is advanced.
    So does the pause before an event is tried again, and a test need not wait for it. `catch_up`
    blocks the test, so it advances the clock by such a pause itself.
    """

    def __init__(self, now: datetime = START) -> None:
        if now.tzinfo is None:
            raise ValueError(f"{now!r} needs a time zone, for example tzinfo=UTC")
        self._start = now
        self._seconds = 0.0
        self._advancing = threading.Lock()

    def __repr__(self) -> str:
        return f"FixedClock({self.now().isoformat()})"

    def now(self) -> datetime:
        """The time it shows."""
        return self._start + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        """The sum of all advances, in seconds."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Moves the clock forward."""
        if not seconds >= 0:
            raise ValueError(f"a clock can't be advanced by {seconds} seconds")
        with self._advancing:
            self._seconds += seconds

    def wait_until(
        self, moment: float, stop: threading.Event, *, part_seconds: float, blocks_caller: bool
    ) -> bool:
        """Waits until the clock was advanced to a moment, or does that itself for `catch_up`."""
        if blocks_caller and not stop.is_set():
            with self._advancing:
                self._seconds = max(self._seconds, moment)
        until = time.monotonic() + part_seconds
        while self.monotonic() < moment and time.monotonic() < until:
            if stop.wait(CHECK_SECONDS):
                break
        return stop.is_set()
