"""Shadow mode: claims, loads and decodes what waits, and measures that; changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.event_types import EventTypes
from holdfast.runtime.store.claims import Claims, RelayStats
from holdfast.runtime.store.clock import Clock

READ_EVENTS = 500
"""Maximum of events that are read at once."""


class Shadow:
    """Looks at each item once."""

    def __init__(self, types: EventTypes, clock: Clock) -> None:
        self._types, self._clock = types, clock
        self._last_id = 0

    def look(self, claims: Claims, stats: RelayStats, goes_on: Callable[[], bool]) -> None:
        """Looks at the items that have come since the last time, and counts them."""
        while goes_on():
            began = self._clock.monotonic()
            found = claims.peek(self._last_id, READ_EVENTS)
            if not found:
                return
            claims.rehearse(lanes=len(found), items=1)
            for id_, event in found:
                self._last_id = id_
                stats.looked += 1
                try:
                    self._types.decode(event)
                except Exception:
                    stats.unreadable += 1
            stats.looked_seconds += self._clock.monotonic() - began
