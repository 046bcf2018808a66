"""Overrides of settings: what they change, and what follows them."""

from typing import Any

import pytest

from holdfast import Backoff, ConfigError, Park, Policy, Poll, Retry
from holdfast.model import arguments
from holdfast.model.tuning import NAMES, Settings, Tuning

POLICY = Policy(on_error=Retry(), backoff=Backoff(delay_seconds=2, max_delay_seconds=4))


def tuning(policy: Policy = POLICY, **policies: Policy) -> Tuning:
    return Tuning(Settings(Poll(), policy, policies, concurrency=8))


def test_every_setting_can_be_read_and_set() -> None:
    tuned = tuning()
    assert tuple(tuned.declared.values()) == NAMES
    values: dict[str, Any] = dict.fromkeys(NAMES, 1) | {"poll.wake": False}
    tuned.check(values)
    tuned.apply(values)
    assert tuned.now.values() == values
    tuned.apply({})
    assert tuned.now == tuned.declared


@pytest.mark.parametrize(
    ("changes", "delay", "longest"),
    [
        ({"delay_seconds": 10}, 10, 10),
        ({"max_delay_seconds": 1}, 1, 1),
        ({"delay_seconds": 3}, 3, 4),
        ({"max_delay_seconds": None}, 2, None),
    ],
)
def test_delay_and_limit_follow_each_other(
    changes: dict[str, Any], delay: float, longest: float | None
) -> None:
    tuned = tuning(card=Policy(on_error=Park(), backoff=POLICY.backoff))
    tuned.apply({f"backoff.{name}": value for name, value in changes.items()})
    backoffs = [
        tuned.now.policy.backoff,
        tuned.now.policies["card"].backoff,
        tuned.backoff_of(POLICY.backoff),
    ]
    assert [(b.delay_seconds, b.max_delay_seconds) for b in backoffs] == [(delay, longest)] * 3


def test_a_time_limit_is_known_and_not_for_a_decision() -> None:
    tuned = tuning()
    known = [tuned.has_time_limits]
    tuned.apply({"backoff.timeout_seconds": 3})
    known.append(tuned.has_time_limits)
    assert known == [False, True]
    assert tuned.now.policy.backoff.timeout_seconds == 3
    assert tuned.backoff_of(Backoff()).timeout_seconds is None


def test_overrides_of_another_release_are_passed_over() -> None:
    tuned = Tuning(Settings(Poll(), POLICY, {}))
    tuned.apply({"concurrency": 3, "gone": 1})
    assert tuned.now == tuned.declared
    with pytest.raises(ConfigError, match="no setting 'gone'"):
        tuned.check({"gone": 1})


@pytest.mark.parametrize("value", [0, 65, 10**8, "8", True])
def test_a_process_works_on_a_limited_number_of_lanes(value: object) -> None:
    with pytest.raises(ConfigError, match="from 1 to 64"):
        arguments.concurrency(value)


@pytest.mark.parametrize("value", [1e18, 10**400, float("inf"), float("nan")])
def test_a_pause_is_one_that_a_clock_can_add(value: float) -> None:
    with pytest.raises(ConfigError, match="1000000000 at most"):
        Poll(interval_seconds=value)
