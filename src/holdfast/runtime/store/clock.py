"""The port of the clock."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The time. It is passed in, so that tests can control it."""

    def now(self) -> datetime:
        """The present time, with a time zone."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def wait_until(
        self, moment: float, stop: threading.Event, *, part_seconds: float, blocks_caller: bool
    ) -> bool:
        """Waits until `monotonic()` shows a moment, or `stop` is set; returns whether it is.

        `part_seconds`: after that time it returns anyway. `blocks_caller`: `catch_up` has not
        returned, so that its caller can't move a test's clock.
        """
