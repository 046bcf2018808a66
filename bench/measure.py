"""What a figure says, and which of two figures is the better one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class Measure(Enum):
    """A kind of figure. Its value is its name in the results, with the unit last."""

    RATE = "events_per_second"
    FIRST_RATE = "first_events_per_second"
    """While the first part of a long journal is applied."""
    LAST_RATE = "last_events_per_second"
    MEDIAN_DELAY = "p50_seconds"
    LONG_DELAY = "p99_seconds"
    LONG_APPEND = "p95_seconds"
    """The time that an append takes its caller."""
    CPU = "cpu_seconds"
    """Processor time of the client."""
    PEAK_MEMORY = "peak_bytes"
    JOURNAL_READS = "journal_reads"
    """Statements that look for events in the journal by their position."""

    @property
    def more_is_better(self) -> bool:
        return self in (Measure.RATE, Measure.FIRST_RATE, Measure.LAST_RATE)

    def times_better(self, value: float, than: float) -> float:
        """How many times better one value is than another; below 1 it is worse."""
        return value / than if self.more_is_better else than / value


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent of them do not exceed."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    ordered = sorted(values)
    # Rounded up without floats, whose 0.99 * 100 is a little more than 99.
    rank = -(-len(ordered) * round(percent * 1000) // 100_000)
    return ordered[max(rank, 1) - 1]
