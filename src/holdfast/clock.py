"""The system's clock, which the runtime gets passed in."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from functools import partial


class SystemClock:
    """Reads the system's time."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)

    def wait_until(
        self,
        moment: float,
        stop: threading.Event,
        *,
        part_seconds: float,
        blocks_caller: bool,  # noqa: ARG002
    ) -> bool:
        return stop.wait(max(0.0, min(part_seconds, moment - time.monotonic())))
