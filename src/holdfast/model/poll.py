"""Poll: how a projection's feed is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from holdfast.model import validate
from holdfast.model.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How a projection's feed is read.

    After a full batch the next read follows at once. `interval_seconds` is the pause after a read
    that found events and reached the head, `empty_backoff_seconds` the pause after a read that
    found none. An append ends a pause, unless `wake` is False.

    After `max_consecutive_failures` failures to reach the store in a row, the projection stops with
    a fault; None means never. Of `failure_backoff` only the pauses count.
    """

    interval_seconds: float = 0.1
    empty_backoff_seconds: float = 1.0
    failure_backoff: Backoff = field(default_factory=lambda: Backoff(max_delay_seconds=30.0))
    max_consecutive_failures: int | None = 10
    wake: bool = True

    def __post_init__(self) -> None:
        validate.positive(self, "interval_seconds", "empty_backoff_seconds")
        validate.instance(self, "failure_backoff", Backoff)
        validate.counting_or_none(self, "max_consecutive_failures", "never")
        validate.instance(self, "wake", bool)

    @classmethod
    def realtime(cls) -> Self:
        """For rows that are read at once: reads every 10 ms, and every 100 ms when idle."""
        return cls(interval_seconds=0.01, empty_backoff_seconds=0.1)

    @classmethod
    def patient(cls) -> Self:
        """Never stops while the store or the broker is away: pauses of 1 s, doubling to a minute.

        The default of a projection on Kafka.
        """
        return cls(failure_backoff=Backoff.critical(), max_consecutive_failures=None)

    @classmethod
    def batch(cls, interval_seconds: float = 60.0) -> Self:
        """For reports: all new events once a minute, and none in between."""
        return cls(
            interval_seconds=interval_seconds, empty_backoff_seconds=interval_seconds, wake=False
        )
