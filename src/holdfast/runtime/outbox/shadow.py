"""Shadow mode: claims, loads and decodes what waits, and measures that; changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.event_types import EventTypes
from holdfast.runtime.store.claims import Claims, RelayStats
from holdfast.runtime.store.clock import Clock

LOOK_EVENTS = 500
"""Events that are read at once."""


class Shadow:
    """Looks at each item once."""

    def __init__(self, types: EventTypes, clock: Clock) -> None:
        self._types, self._clock = types, clock
        self._looked = 0

    def look(self, claims: Claims, tally: RelayStats, goes_on: Callable[[], bool]) -> None:
        """Looks at what has come since the last time, and counts it."""
        while goes_on():
            began = self._clock.monotonic()
            found = claims.look(self._looked, LOOK_EVENTS)
            if not found:
                return
            claims.rehearse(lanes=len(found), items=1)
            for id_, event in found:
                self._looked = id_
                tally.looked += 1
                try:
                    self._types.decode(event)
                except Exception:
                    tally.unreadable += 1
            tally.looked_seconds += self._clock.monotonic() - began
