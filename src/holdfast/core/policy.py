"""Settings of a projection: how its feed is polled, and how waiting grows after failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after the first, second, third… failure in a row."""

    delay_seconds: float = 0.1
    multiplier: float = 2.0
    max_delay_seconds: float = 5.0

    def __post_init__(self) -> None:
        _positive(self, "delay_seconds", "max_delay_seconds")
        if self.multiplier < 1:
            raise ConfigError(f"Backoff.multiplier is {self.multiplier}; it must be 1 or more")
        if self.max_delay_seconds < self.delay_seconds:
            raise ConfigError("Backoff.max_delay_seconds must not be less than delay_seconds")

    def delay(self, failures: int) -> float:
        """Seconds to wait after `failures` failures in a row (1 or more)."""
        # Beyond 64 doublings every sensible cap is reached, and floats would overflow.
        grown = self.delay_seconds * self.multiplier ** min(failures - 1, 64)
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
        if self.max_consecutive_failures is not None and self.max_consecutive_failures < 1:
            raise ConfigError(
                f"Poll.max_consecutive_failures is {self.max_consecutive_failures}; "
                "it must be 1 or more, or None for never"
            )


def _positive(settings: Backoff | Poll, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not (isinstance(value, int | float) and value > 0):
            raise ConfigError(
                f"{type(settings).__name__}.{name} is {value!r}; it must be more than 0"
            )
