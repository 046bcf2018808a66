"""Backoff: what it accepts, what it refuses, and how the pauses grow."""

import math
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Backoff, ConfigError, Failure
from holdfast.model.backoff import LONGEST_SECONDS
from tests.support.failures import failure_of

NO_NUMBERS = (-1, math.nan, math.inf, "1", None, True)

REFUSED: list[tuple[str, Any]] = [
    *(("max_attempts", value) for value in (0, -1, 1.5, "3", True)),
    *(("delay_seconds", value) for value in (0, *NO_NUMBERS)),
    *(("multiplier", value) for value in (0, 0.99, *NO_NUMBERS)),
    *(("max_delay_seconds", value) for value in (0, -1, math.nan, math.inf, "1", True)),
    *(("step_seconds", value) for value in (*NO_NUMBERS, False)),
    *(("jitter", value) for value in (1.01, *NO_NUMBERS)),
    *(("timeout_seconds", value) for value in (0, -1, math.nan, math.inf, "1", True)),
    *(("schedule", value) for value in (1.0, "1")),
]


def test_the_defaults() -> None:
    assert Backoff() == Backoff(
        max_attempts=3,
        delay_seconds=0.1,
        multiplier=2.0,
        max_delay_seconds=None,
        step_seconds=0.0,
        jitter=0.1,
        timeout_seconds=None,
        schedule=None,
    )


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_senseless_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"Backoff\.{name} is {value!r}[;,]"):
        Backoff(**{name: value})


def test_every_field_has_values_that_are_refused() -> None:
    assert {name for name, _ in REFUSED} == {field.name for field in fields(Backoff)}


def test_the_longest_delay_is_not_less_than_the_first() -> None:
    with pytest.raises(ConfigError, match=r"Backoff\.max_delay_seconds must not be less"):
        Backoff(delay_seconds=6, max_delay_seconds=5)
    assert Backoff(delay_seconds=6, max_delay_seconds=6, jitter=0).delay(5) == 6


def test_it_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Backoff().jitter = 0.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Backoff(3)  # type: ignore[call-arg]


def test_attempts_count_the_first_one() -> None:
    assert [Backoff(max_attempts=3).allows(n) for n in (1, 2, 3, 4)] == [True, True, False, False]
    assert not Backoff(max_attempts=1).allows(1)
    assert Backoff(max_attempts=None).allows(10**9)


def pauses(backoff: Backoff, attempts: int = 5) -> list[float]:
    """The pauses without jitter: no pause of `backoff` is longer, and none much shorter."""
    longest = []
    for attempt in range(1, attempts + 1):
        drawn = [backoff.delay(attempt) for _ in range(50)]
        plain = Backoff(
            delay_seconds=backoff.delay_seconds,
            multiplier=backoff.multiplier,
            max_delay_seconds=backoff.max_delay_seconds,
            step_seconds=backoff.step_seconds,
            jitter=0,
        ).delay(attempt)
        assert all(plain * (1 - backoff.jitter) <= seconds <= plain for seconds in drawn)
        longest.append(plain)
    return longest


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(delay_seconds=0.5, multiplier=2, max_delay_seconds=3)
    assert pauses(backoff) == [0.5, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff(), [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6, 6]),
        (Backoff(delay_seconds=90), [90, 180, 360, 720, 1440, 2880, 5400, 5400]),
        (Backoff(delay_seconds=1, multiplier=10), [1, 10, 60, 60]),
        (Backoff(step_seconds=10, multiplier=1), [0.1, 10.1, 20.1]),
        (Backoff.linear(90), [90, 180, 270]),
        (Backoff.exponential(90), [90, 180, 360]),
    ],
)
def test_a_delay_that_somebody_has_set_is_not_cut(backoff: Backoff, expected: list[float]) -> None:
    assert pauses(backoff, len(expected)) == pytest.approx(expected)


def test_constant() -> None:
    backoff = Backoff.constant(2, max_attempts=7)
    assert pauses(backoff) == [2, 2, 2, 2, 2]
    assert backoff.max_attempts == 7


def test_linear() -> None:
    backoff = Backoff.linear(2, max_delay_seconds=7)
    assert pauses(backoff) == [2, 4, 6, 7, 7]
    assert backoff.max_attempts == 3


def test_exponential() -> None:
    backoff = Backoff.exponential(1, multiplier=3, max_delay_seconds=50, max_attempts=None)
    assert pauses(backoff) == [1, 3, 9, 27, 50]
    assert backoff.max_attempts is None


def test_critical() -> None:
    backoff = Backoff.critical()
    assert pauses(backoff, 8) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.max_attempts is None


def test_a_schedule_takes_the_place_of_the_growth() -> None:
    seen: list[Failure] = []

    def schedule(failure: Failure) -> float:
        seen.append(failure)
        return failure.attempt * 1.5

    backoff = Backoff(schedule=schedule, max_delay_seconds=4, jitter=0)
    failures = [failure_of(ValueError("no"), attempt=attempt) for attempt in (1, 2, 3)]
    assert [backoff.delay(f.attempt, f) for f in failures] == [1.5, 3, 4]
    assert seen == failures


@pytest.mark.parametrize(
    ("said", "seconds"), [(-5.0, 0.0), (0, 0.0), (3600, 3600), (math.inf, LONGEST_SECONDS)]
)
def test_a_schedule_is_kept_within_bounds(said: float, seconds: float) -> None:
    failure = failure_of(ValueError("no"))
    assert Backoff(schedule=lambda _: said, jitter=0).delay(1, failure) == seconds
    capped = Backoff(schedule=lambda _: said, jitter=0, max_delay_seconds=5)
    assert capped.delay(1, failure) == min(seconds, 5)
    assert failure.failed_at + timedelta(seconds=seconds) > failure.failed_at or seconds == 0


def test_a_schedule_that_says_nothing_of_use_is_an_error() -> None:
    with pytest.raises(ValueError, match="NaN"):
        Backoff(schedule=lambda _: math.nan).delay(1, failure_of(ValueError("no")))
    with pytest.raises(TypeError):
        Backoff(schedule=lambda _: None).delay(1, failure_of(ValueError("no")))  # type: ignore[arg-type, return-value]


def test_jitter_differs() -> None:
    backoff = Backoff(jitter=1.0)
    assert len({backoff.delay(1) for _ in range(20)}) > 1


@given(
    first=st.floats(1e-6, 1e6),
    multiplier=st.floats(1, 1e6),
    longest=st.floats(1e-6, 1e9),
    step=st.floats(0, 1e6),
    attempt=st.integers(1, 10**12),
)
def test_delays_never_shrink_nor_exceed_the_longest(
    first: float, multiplier: float, longest: float, step: float, attempt: int
) -> None:
    longest = max(first, longest)
    backoff = Backoff(
        delay_seconds=first,
        multiplier=multiplier,
        max_delay_seconds=longest,
        step_seconds=step,
        jitter=0,
    )
    assert backoff.delay(1) == first
    assert first <= backoff.delay(attempt) <= backoff.delay(attempt + 1) <= longest


@given(jitter=st.floats(0, 1), attempt=st.integers(1, 100), said=st.none() | st.floats(0, 100))
def test_jitter_stays_within_its_share(jitter: float, attempt: int, said: float | None) -> None:
    schedule = None if said is None else lambda _: said
    failure = failure_of(ValueError("no"), attempt=attempt)
    plain = Backoff(schedule=schedule, jitter=0).delay(attempt, failure)
    seconds = Backoff(schedule=schedule, jitter=jitter).delay(attempt, failure)
    assert plain * (1 - jitter) <= seconds <= plain
