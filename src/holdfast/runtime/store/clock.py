"""The port of the clock."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The time. It is passed in, so that tests can control it."""

    def now(self) -> datetime:
        """The present time, with a time zone."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
