"""How many lanes fit into one transaction."""

from __future__ import annotations

import threading

from holdfast.runtime.store.claims import RelayStats

BUNDLE_SECONDS = 0.2
"""A transaction for many lanes should take so long."""

LARGEST_BUNDLE = 200
"""Lanes in one transaction."""

LOADED_ITEMS = 2_000
"""Items that are loaded for them."""


class BundleSize:
    """How long an event takes, for all hands of a relay, and what fits into a bundle by that."""

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._seconds: float | None = None
        self._lock = threading.Lock()
        self.tally = RelayStats()

    def took(self, applied: int, failed: int, seconds: float) -> None:
        """So many events were tried in so many seconds."""
        events = applied + failed
        with self._lock:
            self.tally.applied += applied
            self.tally.failed += failed
        if events and seconds:
            each = seconds / events
            known = self._seconds
            self._seconds = each if known is None else known + 0.2 * (each - known)

    @property
    def size(self) -> tuple[int, int]:
        """How many lanes to claim, and how many items of each."""
        if self._alone or self._seconds is None:
            return 1, 1
        fits = max(1, int(BUNDLE_SECONDS / max(self._seconds, 1e-6)))
        lanes = min(fits, LARGEST_BUNDLE)
        return lanes, max(1, min(fits, LOADED_ITEMS // lanes))
