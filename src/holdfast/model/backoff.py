"""Backoff: the number of attempts at an event, and the pauses between them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from holdfast.errors import ConfigError
from holdfast.model import validate
from holdfast.model.failure import Failure

GROWTH = 60
"""How many times the first pause the longest one is, where nobody has said how long it is."""

LONGEST_SECONDS = 100 * 365 * 86_400.0
"""Maximum of a pause: its end must be a date that clocks and databases know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The number of attempts, the pauses between them, and the time limit of each.

    The pause after attempt n is `delay_seconds * multiplier ** (n - 1) + step_seconds * (n - 1)`,
    at most `max_delay_seconds`, then shortened by a random share of up to `jitter` (0 to 1).
    Without `max_delay_seconds`, pauses grow to 60 times `delay_seconds` or `step_seconds`,
    whichever is more. `schedule` computes the pause from the failure instead; jitter still applies,
    and so does a `max_delay_seconds` that is given.

    `max_attempts` counts the first attempt too; None is unlimited. `timeout_seconds` limits each
    attempt: an async handler is cancelled, and so is the SQL of a def handler. Other code of a def
    handler can't be stopped; its attempt fails when it returns.
    """

    max_attempts: int | None = 3
    delay_seconds: float = 0.1
    multiplier: float = 2.0
    max_delay_seconds: float | None = None
    step_seconds: float = 0.0
    jitter: float = 0.1
    timeout_seconds: float | None = None
    schedule: Callable[[Failure], float] | None = None

    def __post_init__(self) -> None:
        validate.counting_or_none(self, "max_attempts", "no limit")
        validate.positive(self, "delay_seconds", "multiplier")
        validate.positive_or_none(self, "max_delay_seconds")
        validate.positive_or_none(self, "timeout_seconds")
        validate.fraction(self, "jitter")
        validate.function_or_none(self, "schedule")
        validate.not_negative(self, "step_seconds")
        if self.multiplier < 1:
            raise ConfigError(f"Backoff.multiplier is {self.multiplier}; it must be 1 or more")
        if self.max_delay_seconds is not None and self.max_delay_seconds < self.delay_seconds:
            raise ConfigError("Backoff.max_delay_seconds must not be less than delay_seconds")

    @classmethod
    def constant(cls, delay_seconds: float, *, max_attempts: int | None = 3) -> Self:
        """The same pause every time."""
        return cls(
            max_attempts=max_attempts,
            delay_seconds=delay_seconds,
            multiplier=1.0,
            max_delay_seconds=delay_seconds,
        )

    @classmethod
    def linear(
        cls,
        step_seconds: float,
        *,
        max_delay_seconds: float | None = None,
        max_attempts: int | None = 3,
    ) -> Self:
        """Pauses that grow by the same step: 1 s, 2 s, 3 s…"""
        return cls(
            max_attempts=max_attempts,
            delay_seconds=step_seconds,
            multiplier=1.0,
            step_seconds=step_seconds,
            max_delay_seconds=max_delay_seconds,
        )

    @classmethod
    def exponential(
        cls,
        delay_seconds: float,
        *,
        multiplier: float = 2.0,
        max_delay_seconds: float | None = None,
        max_attempts: int | None = 3,
    ) -> Self:
        """Pauses that grow by the same factor: 1 s, 2 s, 4 s…"""
        return cls(
            max_attempts=max_attempts,
            delay_seconds=delay_seconds,
            multiplier=multiplier,
            max_delay_seconds=max_delay_seconds,
        )

    @classmethod
    def critical(cls) -> Self:
        """For rows that must be right rather than soon: no limit, 1 s doubling to a minute."""
        return cls(max_attempts=None, delay_seconds=1.0)

    def allows(self, attempt: int) -> bool:
        """Whether there may be another attempt after this one."""
        return self.max_attempts is None or attempt < self.max_attempts

    def delay(self, attempt: int, failure: Failure | None = None) -> float:
        """Seconds to wait after attempt number `attempt` (1 or more)."""
        seconds = max(0.0, min(self._planned(attempt, failure), LONGEST_SECONDS))
        return seconds * (1.0 - self.jitter * random.random())

    def _planned(self, attempt: int, failure: Failure | None) -> float:
        longest = self.max_delay_seconds
        if self.schedule is not None and failure is not None:
            seconds = float(self.schedule(failure))
            if math.isnan(seconds):
                raise ValueError("it returned NaN, not seconds")
            return seconds if longest is None else min(seconds, longest)
        if longest is None:
            longest = GROWTH * max(self.delay_seconds, self.step_seconds)
        try:
            grown = self.delay_seconds * float(self.multiplier) ** (attempt - 1)
        except OverflowError:
            return longest
        return min(grown + self.step_seconds * (attempt - 1), longest)
