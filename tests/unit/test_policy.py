"""Settings: what each accepts, what it refuses, and how waiting grows."""

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Backoff, ConfigError, Poll

REFUSED: list[tuple[type, str, Any]] = [
    *((Backoff, "delay_seconds", value) for value in (0, -1, math.nan, "1", None, True)),
    *((Backoff, "max_delay_seconds", value) for value in (0, -1, math.nan, math.inf, "1", None)),
    *((Backoff, "multiplier", value) for value in (0, 0.99, -2, math.nan, math.inf, "2", None)),
    *((Poll, "interval_seconds", value) for value in (0, -1, math.nan, math.inf, "1", None)),
    *((Poll, "empty_backoff_seconds", value) for value in (0, -1, math.nan, math.inf, "1", None)),
    *((Poll, "max_consecutive_failures", value) for value in (0, -1, 1.5, "1", True)),
    *((Poll, "failure_backoff", value) for value in (None, 1.0)),
]


def test_the_defaults() -> None:
    assert Backoff() == Backoff(delay_seconds=0.1, multiplier=2.0, max_delay_seconds=5.0)
    assert Poll() == Poll(
        interval_seconds=0.1,
        empty_backoff_seconds=1.0,
        failure_backoff=Backoff(delay_seconds=0.1, multiplier=2.0, max_delay_seconds=30.0),
        max_consecutive_failures=10,
    )
    assert Poll(max_consecutive_failures=None).max_consecutive_failures is None


@pytest.mark.parametrize(("settings", "name", "value"), REFUSED)
def test_a_senseless_value_is_refused_by_name(settings: type, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{settings.__name__}\.{name}"):
        settings(**{name: value})


def test_the_longest_delay_is_not_less_than_the_first() -> None:
    with pytest.raises(ConfigError, match="max_delay_seconds must not be less"):
        Backoff(delay_seconds=6)
    assert Backoff(delay_seconds=6, max_delay_seconds=6).delay(5) == 6


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Poll().interval_seconds = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Backoff(0.1)  # type: ignore[call-arg]


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(delay_seconds=0.5, multiplier=2, max_delay_seconds=3)
    assert [backoff.delay(n) for n in range(1, 6)] == [0.5, 1, 2, 3, 3]


@given(
    first=st.floats(1e-6, 1e6),
    multiplier=st.floats(1, 1e6),
    longest=st.floats(1e-6, 1e9),
    failures=st.integers(1, 10**12),
)
def test_delays_never_shrink_nor_exceed_the_longest(
    first: float, multiplier: float, longest: float, failures: int
) -> None:
    longest = max(first, longest)
    backoff = Backoff(delay_seconds=first, multiplier=multiplier, max_delay_seconds=longest)
    assert backoff.delay(1) == first
    assert first <= backoff.delay(failures) <= backoff.delay(failures + 1) <= longest
