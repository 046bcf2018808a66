"""Settings of a projection: how its feed is polled, and how waiting grows after failures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from holdfast.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after the first, second, third… failure in a row."""

    delay_seconds: float = 0.1
    multiplier: float = 2.0
    max_delay_seconds: float = 5.0

    def __post_init__(self) -> None:
        _positive(self, "delay_seconds", "max_delay_seconds", "multiplier")
        if self.multiplier < 1:
            raise ConfigError(f"Backoff.multiplier is {self.multiplier}; it must be 1 or more")
        if self.max_delay_seconds < self.delay_seconds:
            raise ConfigError("Backoff.max_delay_seconds must not be less than delay_seconds")

    def delay(self, failures: int) -> float:
        """Seconds to wait after `failures` failures in a row (1 or more)."""
        try:
            grown = self.delay_seconds * float(self.multiplier) ** (failures - 1)
        except OverflowError:
            return self.max_delay_seconds
        return min(grown, self.max_delay_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How a projection's feed is read.

    Wake-ups and full batches don't wait: `interval_seconds` is the pause after a read that found
    events and reached the head, `empty_backoff_seconds` the pause after one that found none.
    When the store can't be reached `max_consecutive_failures` times in a row, the projection
    stops with a fault; None means never.
    """

    interval_seconds: float = 0.1
    empty_backoff_seconds: float = 1.0
    failure_backoff: Backoff = field(default_factory=lambda: Backoff(max_delay_seconds=30.0))
    max_consecutive_failures: int | None = 10

    def __post_init__(self) -> None:
        _positive(self, "interval_seconds", "empty_backoff_seconds")
        if not isinstance(self.failure_backoff, Backoff):
            raise ConfigError(f"Poll.failure_backoff is {self.failure_backoff!r}, not a Backoff")
        limit = self.max_consecutive_failures
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigError(
                f"Poll.max_consecutive_failures is {limit!r}; "
                "it must be 1 or more, or None for never"
            )


def _positive(settings: Backoff | Poll, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 < value < math.inf):
            raise ConfigError(
                f"{type(settings).__name__}.{name} is {value!r}; it must be more than 0"
            )
