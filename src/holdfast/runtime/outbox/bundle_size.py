"""How many lanes fit into one transaction of a relay, by how long events have taken."""

from __future__ import annotations

import threading

from holdfast.runtime.store.claims import RelayStats

BUNDLE_SECONDS = 0.2
"""Target time of a transaction for many lanes."""

LARGEST_BUNDLE = 200
"""Maximum of lanes in one transaction."""

LOADED_ITEMS = 2_000
"""Maximum of items that are loaded for them."""

WEIGHT = 0.2
"""Weight of the latest transaction in the mean time of an event."""


class BundleSize:
    """The mean time of an event, for all executors of a relay, and what fits into a bundle."""

    def __init__(self, *, alone: bool) -> None:
        """`alone`: each event has a transaction of its own."""
        self._alone = alone
        self._seconds: float | None = None
        self._lock = threading.Lock()
        self.stats = RelayStats()

    def took(self, applied: int, failed: int, seconds: float) -> None:
        """Events were tried, and took this long together."""
        events = applied + failed
        with self._lock:
            self.stats.applied += applied
            self.stats.failed += failed
        if events and seconds:
            each, known = seconds / events, self._seconds
            self._seconds = each if known is None else known + WEIGHT * (each - known)

    @property
    def lanes_and_items(self) -> tuple[int, int]:
        """How many lanes to claim for an executor, and how many items of each."""
        if self._alone or self._seconds is None:
            return 1, 1
        fits = max(1, int(BUNDLE_SECONDS / max(self._seconds, 1e-6)))
        lanes = min(fits, LARGEST_BUNDLE)
        return lanes, max(1, min(fits, LOADED_ITEMS // lanes))
