"""Policy: decisions, what it accepts and refuses, and how errors are told apart."""

import math
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    Backoff,
    Breaker,
    ConfigError,
    Decision,
    Failure,
    Fatal,
    Limits,
    Park,
    Policy,
    Retry,
    RetryBudget,
    Skip,
)
from tests.support.failures import failure_of


class Credited:
    pass


def decision_of(policy: Policy, error: BaseException) -> Any:
    assert callable(policy.on_error)
    return policy.on_error(failure_of(error))


# Decisions


def test_decisions_are_values() -> None:
    assert Fatal() == Fatal()
    assert Park() == Park(retry=None)
    assert Retry() == Retry(backoff=None, exhausted=None)
    assert len({Fatal(), Skip(), Park(), Retry(), Skip()}) == 4
    with pytest.raises(FrozenInstanceError):
        Park().retry = Backoff()  # type: ignore[misc]


def test_an_age_is_counted_from_the_first_failure() -> None:
    assert failure_of(ValueError(), age_seconds=90).age_seconds == 90


DECISIONS_REFUSED: list[tuple[type, str, Any]] = [
    (Park, "retry", 3),
    (Park, "retry", Retry()),
    (Retry, "backoff", 3),
    (Retry, "exhausted", Retry()),
    (Retry, "exhausted", Park),
    (Retry, "exhausted", "park"),
]


@pytest.mark.parametrize(("decision", "name", "value"), DECISIONS_REFUSED)
def test_a_senseless_decision_is_refused(decision: type, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{decision.__name__}\.{name} is .+, not a"):
        decision(**{name: value})


def test_a_time_limit_is_the_policys() -> None:
    limited = Backoff(timeout_seconds=1)
    with pytest.raises(ConfigError, match=r"Retry\.backoff has timeout_seconds.+Policy\.backoff"):
        Retry(limited)
    with pytest.raises(ConfigError, match=r"Park\.retry has timeout_seconds.+Policy\.backoff"):
        Park(limited)
    assert Policy(backoff=limited).backoff is limited


def test_a_schedule_is_not_for_the_queue() -> None:
    with pytest.raises(ConfigError, match=r"Park\.retry has a schedule"):
        Park(retry=Backoff(schedule=lambda _: 1.0))


# Settings


def test_the_defaults() -> None:
    assert Policy() == Policy(
        on_error=Fatal(),
        backoff=Backoff(),
        exhausted=Fatal(),
        event_types={},
        fallback=None,
        breaker=None,
        budget=None,
        limits=Limits(),
    )
    assert Breaker() == Breaker(failures=10, pause_seconds=30.0)
    assert RetryBudget() == RetryBudget(seconds=60.0, window_seconds=600.0)
    assert Limits() == Limits(events_per_lane=10_000, lanes=1_000)


NO_SECONDS = (0, -1, math.nan, math.inf, "1", None, True)
NO_COUNTS = (0, -1, 1.5, "1", None, True)
REFUSED: list[tuple[type, str, Any]] = [
    *((Policy, "on_error", value) for value in (None, "skip", Park, 3)),
    *((Policy, "backoff", value) for value in (None, 3)),
    *((Policy, "exhausted", value) for value in (None, Skip, "skip", Retry())),
    *((Policy, "event_types", value) for value in (None, [Credited], "credited")),
    *((Policy, "fallback", value) for value in ("f", 3)),
    *((Policy, "breaker", value) for value in (10, Breaker)),
    *((Policy, "budget", value) for value in (10, RetryBudget)),
    *((Policy, "limits", value) for value in (None, 10)),
    *((Breaker, "failures", value) for value in NO_COUNTS),
    *((Breaker, "pause_seconds", value) for value in NO_SECONDS),
    *((RetryBudget, "seconds", value) for value in NO_SECONDS),
    *((RetryBudget, "window_seconds", value) for value in NO_SECONDS),
    *((Limits, "events_per_lane", value) for value in NO_COUNTS),
    *((Limits, "lanes", value) for value in NO_COUNTS),
]


@pytest.mark.parametrize(("settings", "name", "value"), REFUSED)
def test_a_senseless_value_is_refused_by_name(settings: type, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{settings.__name__}\.{name} is .+(not|must be) "):
        settings(**{name: value})


def test_every_field_has_values_that_are_refused() -> None:
    for settings in (Policy, Breaker, RetryBudget, Limits):
        refused = {name for cls, name, _ in REFUSED if cls is settings}
        assert refused == {field.name for field in fields(settings)}


def test_messages_say_what_is_wanted() -> None:
    with pytest.raises(ConfigError) as on_error:
        Policy(on_error=Park)  # type: ignore[arg-type]
    assert "not a decision such as Park()" in str(on_error.value)
    with pytest.raises(ConfigError) as breaker:
        Policy(breaker=3)  # type: ignore[arg-type]
    assert str(breaker.value) == "Policy.breaker is 3, not a Breaker or None"
    with pytest.raises(ConfigError) as exhausted:
        Policy(exhausted=Retry())  # type: ignore[arg-type]
    assert str(exhausted.value).endswith("not a Fatal or a Skip or a Park")


def test_a_window_is_not_shorter_than_its_budget() -> None:
    with pytest.raises(ConfigError, match=r"RetryBudget\.window_seconds must not be less"):
        RetryBudget(seconds=601)
    assert RetryBudget(seconds=601, window_seconds=601).seconds == 601


def test_functions_of_both_kinds_can_decide() -> None:
    def decide(failure: Failure) -> Decision:
        return Skip()

    async def decide_later(failure: Failure) -> Decision:
        return Skip()

    assert Policy(on_error=decide).on_error is decide
    assert Policy(on_error=decide_later).on_error is decide_later


# Event types


def test_event_types_have_policies_of_their_own() -> None:
    own = Policy(on_error=Skip(), backoff=Backoff(max_attempts=1), exhausted=Park(), fallback=print)
    policy = Policy(event_types={Credited: own, "account.closed": own}, breaker=Breaker())
    assert policy.event_types == {Credited: own, "account.closed": own}


@pytest.mark.parametrize(
    "inner",
    [
        Policy(event_types={"credited": Policy()}),
        Policy(breaker=Breaker()),
        Policy(budget=RetryBudget()),
        Policy(limits=Limits(lanes=1)),
    ],
    ids=["event_types", "breaker", "budget", "limits"],
)
def test_what_is_for_the_whole_projection_is_refused_inside(inner: Policy) -> None:
    with pytest.raises(ConfigError, match=r"event_types\['credited'\].+give them to the outer"):
        Policy(event_types={"credited": inner})


def test_wrong_event_types_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Policy\.event_types\[3\]: give event classes"):
        Policy(event_types={3: Policy()})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"Policy\.event_types\['credited'\] is Skip\(\), not a"):
        Policy(event_types={"credited": Skip()})  # type: ignore[dict-item]


# Presets


def test_the_presets() -> None:
    assert Policy.fatal() == Policy()
    assert Policy.best_effort() == Policy(on_error=Skip())
    patient = Policy.retry_then_park()
    assert (patient.on_error, patient.exhausted) == (Retry(), Park())
    assert patient.backoff.max_attempts == 3
    assert [patient.backoff.delay(n) for n in (1, 2)] == [1.0, 2.0]


def test_retry_then_park_takes_other_numbers() -> None:
    policy = Policy.retry_then_park(
        attempts=5,
        delay_seconds=10,
        multiplier=3,
        max_delay_seconds=100,
        jitter=0.5,
        timeout_seconds=7,
        retry=Backoff.critical(),
    )
    assert (policy.on_error, policy.exhausted) == (Retry(), Park(Backoff.critical()))
    assert policy.backoff == Backoff(
        max_attempts=5,
        delay_seconds=10,
        multiplier=3,
        max_delay_seconds=100,
        jitter=0.5,
        timeout_seconds=7,
    )
    assert Policy.retry_then_park(delay_seconds=90).backoff.delay(2) == 180
    assert Policy.outbox() == Policy.retry_then_park(
        attempts=8, max_delay_seconds=300.0, jitter=0.1
    )


@pytest.mark.parametrize("attempts", [0, None, True, 1.5])
def test_retry_then_park_needs_a_number_of_attempts(attempts: Any) -> None:
    with pytest.raises(ConfigError, match=f"retry_then_park: attempts is {attempts!r}; it must"):
        Policy.retry_then_park(attempts=attempts)


def test_classify_knows_the_errors_that_pass() -> None:
    policy = Policy.classify()
    retry = decision_of(policy, ConnectionResetError())
    assert retry == Retry(Backoff.critical())
    assert decision_of(policy, ValueError()) == Fatal()


def test_classify_by_classes() -> None:
    policy = Policy.classify(
        transient=(KeyError, OSError),
        permanent=ValueError,
        otherwise=Skip(),
        backoff=Backoff(max_attempts=5),
    )
    assert decision_of(policy, KeyError()) == Retry(Backoff(max_attempts=5))
    assert decision_of(policy, TimeoutError()) == Retry(Backoff(max_attempts=5))
    assert decision_of(policy, UnicodeError()) == Park()
    assert decision_of(policy, TypeError()) == Skip()


def test_classify_by_functions() -> None:
    policy = Policy.classify(
        transient=lambda error: "busy" in str(error),
        permanent=lambda error: "wrong" in str(error),
        otherwise=lambda failure: Park() if failure.position == 7 else Fatal(),
    )
    assert isinstance(decision_of(policy, ValueError("busy")), Retry)
    assert decision_of(policy, ValueError("wrong")) == Park()
    assert decision_of(policy, ValueError("odd")) == Park(retry=None)


def test_what_is_both_permanent_and_transient_is_not_tried_again() -> None:
    policy = Policy.classify(permanent=TimeoutError)
    assert decision_of(policy, TimeoutError()) == Park()


def test_classify_with_a_time_limit_limits_every_attempt() -> None:
    backoff = Backoff(max_attempts=4, timeout_seconds=2)
    policy = Policy.classify(backoff=backoff)
    assert policy.backoff.timeout_seconds == 2
    assert decision_of(policy, TimeoutError()) == Retry(replace(backoff, timeout_seconds=None))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transient", 3),
        ("transient", [ValueError]),
        ("transient", (ValueError, int)),
        ("permanent", "ValueError"),
        ("permanent", int),
        ("otherwise", None),
        ("otherwise", Park),
    ],
)
def test_classify_refuses_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"Policy\.classify: {name} "):
        Policy.classify(**{name: value})


@given(st.sampled_from([ValueError, KeyError, TimeoutError, OSError, ZeroDivisionError]))
def test_classify_always_decides(error: type[Exception]) -> None:
    policy = Policy.classify(permanent=LookupError, otherwise=Skip())
    assert isinstance(decision_of(policy, error()), Decision)
