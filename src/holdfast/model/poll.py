"""Poll: how a projection's feed is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from holdfast.model import validate as settings
from holdfast.model.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How a projection's feed is read.

    Full batches don't wait, and wake-ups end a pause: `interval_seconds` is the one after a read
    that found events and reached the head, `empty_backoff_seconds` the one after a read that found
    none. Where many projections follow one journal, a wake-up waits for their beat, but no longer
    than `interval_seconds`.
    With `wake=False` the pauses are kept whatever is appended meanwhile.

    When the store can't be reached `max_consecutive_failures` times in a row, the projection
    stops with a fault; None means never. Of `failure_backoff` only the pauses count.
    """

    interval_seconds: float = 0.1
    empty_backoff_seconds: float = 1.0
    failure_backoff: Backoff = field(default_factory=lambda: Backoff(max_delay_seconds=30.0))
    max_consecutive_failures: int | None = 10
    wake: bool = True

    def __post_init__(self) -> None:
        settings.positive(self, "interval_seconds", "empty_backoff_seconds")
        settings.instance(self, "failure_backoff", Backoff)
        settings.counting_or_none(self, "max_consecutive_failures", "never")
        settings.instance(self, "wake", bool)

    @classmethod
    def realtime(cls) -> Self:
        """For those who look at the rows at once: every 10 ms, and every 100 ms when idle."""
        return cls(interval_seconds=0.01, empty_backoff_seconds=0.1)

    @classmethod
    def patient(cls) -> Self:
        """Never gives up while the store or the broker is away: 1 s, doubling to a minute.

        What a projection on Kafka does that says nothing.
        """
        return cls(failure_backoff=Backoff.critical(), max_consecutive_failures=None)

    @classmethod
    def batch(cls, interval_seconds: float = 60.0) -> Self:
        """For reports: everything there is, once a minute, and never in between."""
        return cls(
            interval_seconds=interval_seconds, empty_backoff_seconds=interval_seconds, wake=False
        )
