"""Time, passed in."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, passed in, so that tests can hold it still."""

    def now(self) -> datetime:
        """The present, with a time zone."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
