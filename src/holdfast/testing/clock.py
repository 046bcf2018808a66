"""A clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class FixedClock:
    """Shows the same time until it is told to advance: `App(url, clock=FixedClock())`.

    A timeout by this clock, such as that of `App.wait_for`, only ends when the clock is advanced.
    """

    def __init__(self, now: datetime = START) -> None:
        if now.tzinfo is None:
            raise ValueError(f"{now!r} needs a time zone, for example tzinfo=UTC")
        self._start = now
        self._seconds = 0.0

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
        self._seconds += seconds
