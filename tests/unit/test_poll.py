"""Poll: how a feed is read."""

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from holdfast import Backoff, ConfigError, Poll

REFUSED: list[tuple[str, Any]] = [
    *(("interval_seconds", value) for value in (0, -1, math.nan, math.inf, "1", None, True)),
    *(("empty_backoff_seconds", value) for value in (0, -1, math.nan, math.inf, "1", None, True)),
    *(("failure_backoff", value) for value in (None, 1.0)),
    *(("max_consecutive_failures", value) for value in (0, -1, 1.5, "1", True)),
    *(("wake", value) for value in (None, 1, "yes")),
]


def test_the_defaults() -> None:
    assert Poll() == Poll(
        interval_seconds=0.1,
        empty_backoff_seconds=1.0,
        failure_backoff=Backoff(delay_seconds=0.1, multiplier=2.0, max_delay_seconds=30.0),
        max_consecutive_failures=10,
        wake=True,
    )
    assert Poll(max_consecutive_failures=None).max_consecutive_failures is None


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_senseless_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"Poll\.{name} is {value!r}[;,]"):
        Poll(**{name: value})


def test_every_field_has_values_that_are_refused() -> None:
    assert {name for name, _ in REFUSED} == {field.name for field in fields(Poll)}


def test_it_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Poll().interval_seconds = 2.0  # type: ignore[misc]


def test_realtime_looks_often_and_is_woken() -> None:
    poll = Poll.realtime()
    assert (poll.interval_seconds, poll.empty_backoff_seconds, poll.wake) == (0.01, 0.1, True)


def test_batch_keeps_its_pauses() -> None:
    poll = Poll.batch()
    assert (poll.interval_seconds, poll.empty_backoff_seconds, poll.wake) == (60, 60, False)
    assert Poll.batch(5) == Poll(interval_seconds=5, empty_backoff_seconds=5, wake=False)
    with pytest.raises(ConfigError, match=r"Poll\.interval_seconds is 0"):
        Poll.batch(0)
