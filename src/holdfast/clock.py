"""The system's clock, which the runtime gets passed in."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial


class SystemClock:
    """Reads the system's time."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)
