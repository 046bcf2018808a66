"""Policy: whether to go on after a failure.

A policy answers each failed attempt with one of four decisions. Backoff says how fast an event is
tried again, Poll how the feed is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from holdfast.errors import ConfigError
from holdfast.model import validate
from holdfast.model.backoff import Backoff
from holdfast.model.failure import Failure, is_transient


@dataclass(frozen=True, slots=True)
class Fatal:
    """Stop the projection at this event, with everything before it applied. The default."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Go on without this event. A `skipped` row keeps it and its error."""


@dataclass(frozen=True, slots=True)
class Park:
    """Put the event in the queue, close its lane, and go on with the other lanes.

    With `retry` it is tried again from there; without, it waits for an operator.
    """

    retry: Backoff | None = None

    def __post_init__(self) -> None:
        if self.retry is not None:
            validate.instance(self, "retry", Backoff)
            _check_unlimited("Park.retry", self.retry)
            if self.retry.schedule is not None:
                raise ConfigError("Park.retry has a schedule, which is for a Retry alone")


FATAL = Fatal()
Final = Fatal | Skip | Park
"""A decision that ends the attempts."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try the same event again; no later event is applied before it.

    `backoff` and `exhausted` replace those of the policy.
    """

    backoff: Backoff | None = None
    exhausted: Final | None = None

    def __post_init__(self) -> None:
        if self.backoff is not None:
            validate.instance(self, "backoff", Backoff)
            _check_unlimited("Retry.backoff", self.backoff)
        if self.exhausted is not None:
            validate.instance(self, "exhausted", Fatal, Skip, Park)


Decision = Fatal | Skip | Park | Retry
OnError = Callable[[Failure], Decision | Awaitable[Decision]]
Predicate = Callable[[BaseException], bool]
Errors = type[BaseException] | tuple[type[BaseException], ...] | Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Pauses the whole projection after `failures` failed attempts in a row, of any events.

    After the pause one event is tried. If it fails, the pause begins again; nothing is skipped or
    parked meanwhile. `failures` should be more than the attempts of one event.
    """

    failures: int = 10
    pause_seconds: float = 30.0

    def __post_init__(self) -> None:
        validate.counting(self, "failures")
        validate.positive(self, "pause_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """Limits the time that a projection waits for retries of all its events.

    After `seconds` of waiting within `window_seconds`, a Retry counts as exhausted.
    """

    seconds: float = 60.0
    window_seconds: float = 600.0

    def __post_init__(self) -> None:
        validate.positive(self, "seconds", "window_seconds")
        if self.window_seconds < self.seconds:
            raise ConfigError("RetryBudget.window_seconds must not be less than seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Maximum of events and lanes in the queue. The projection stops before it fills the disk."""

    events_per_lane: int = 10_000
    lanes: int = 1_000

    def __post_init__(self) -> None:
        validate.counting(self, "events_per_lane", "lanes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Whether to go on after a failure.

    `on_error` is a decision, or a function (def or async def) from a Failure to a decision; if the
    function raises, the decision is Fatal. `backoff` says how a Retry behaves, `exhausted` what
    follows the last attempt. `event_types` gives event classes or type names their own policies.
    `fallback` is a second handler with the arguments of the first, called before a Skip, Park or
    Fatal: if it returns, the event counts as handled. `breaker`, `budget` and `limits` are for the
    whole projection.
    """

    on_error: Decision | OnError = Fatal()
    backoff: Backoff = field(default_factory=Backoff)
    exhausted: Final = Fatal()
    event_types: Mapping[type | str, Policy] = field(default_factory=dict)
    fallback: Callable[..., Any] | None = None
    breaker: Breaker | None = None
    budget: RetryBudget | None = None
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        _check_on_error("Policy.on_error", self.on_error)
        validate.instance(self, "backoff", Backoff)
        validate.instance(self, "exhausted", Fatal, Skip, Park)
        validate.function_or_none(self, "fallback")
        validate.instance(self, "breaker", Breaker, type(None))
        validate.instance(self, "budget", RetryBudget, type(None))
        validate.instance(self, "limits", Limits)
        validate.instance(self, "event_types", Mapping)
        for event_type, policy in self.event_types.items():
            _check_inner(event_type, policy)

    @classmethod
    def fatal(cls) -> Self:
        """Stop at the first failure. The default."""
        return cls()

    @classmethod
    def best_effort(cls) -> Self:
        """Go on without events that fail: for caches and dashboards that may have gaps."""
        return cls(on_error=Skip())

    @classmethod
    def retry_then_park(
        cls,
        *,
        attempts: int = 3,
        delay_seconds: float = 1.0,
        multiplier: float = 2.0,
        max_delay_seconds: float | None = None,
        jitter: float = 0.0,
        timeout_seconds: float | None = None,
        retry: Backoff | None = None,
    ) -> Self:
        """Three attempts, 1 s and 2 s apart; then the event is parked and its lane closed.

        The pauses are those of a Backoff with these arguments. With `retry`, the parked event is
        tried again from the queue.
        """
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(
                f"Policy.retry_then_park: attempts is {attempts!r}; it must be 1 or more"
            )
        backoff = Backoff(
            max_attempts=attempts,
            delay_seconds=delay_seconds,
            multiplier=multiplier,
            max_delay_seconds=max_delay_seconds,
            jitter=jitter,
            timeout_seconds=timeout_seconds,
        )
        return cls(on_error=Retry(), backoff=backoff, exhausted=Park(retry))

    @classmethod
    def outbox(cls) -> Self:
        """Eight attempts, 1 s apart, doubling to five minutes; then an operator decides.

        The default of outbox delivery. `retry_then_park` takes other numbers.
        """
        return cls.retry_then_park(attempts=8, max_delay_seconds=300.0, jitter=0.1)

    @classmethod
    def classify(
        cls,
        *,
        transient: Errors = is_transient,
        permanent: Errors = (),
        otherwise: Decision | OnError = FATAL,
        backoff: Backoff | None = None,
    ) -> Self:
        """Decides by the error, given as classes or as a function from an error to bool.

        `transient` errors are tried again as `backoff` says, by default without limit, 1 s doubling
        to a minute. `permanent` ones are parked at once. `otherwise` decides on the rest.
        """
        again = Backoff.critical() if backoff is None else backoff
        _check_on_error("Policy.classify: otherwise", otherwise)
        return cls(
            on_error=_Classified(
                _predicate("transient", transient),
                _predicate("permanent", permanent),
                Retry(replace(again, timeout_seconds=None)),
                otherwise,
            ),
            backoff=Backoff(timeout_seconds=again.timeout_seconds),
        )


@dataclass(frozen=True, slots=True)
class _Classified:
    is_transient: Predicate
    is_permanent: Predicate
    retry: Retry
    otherwise: Decision | OnError

    def __call__(self, failure: Failure) -> Decision | Awaitable[Decision]:
        if self.is_permanent(failure.error):
            return Park()
        if self.is_transient(failure.error):
            return self.retry
        return self.otherwise(failure) if callable(self.otherwise) else self.otherwise


def _predicate(name: str, errors: Errors) -> Predicate:
    classes = (errors,) if isinstance(errors, type) else errors
    if not isinstance(classes, tuple):
        if not callable(classes):
            raise ConfigError(f"Policy.classify: {name} is {errors!r}, not error classes")
        return classes
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise ConfigError(f"Policy.classify: {name} names {cls!r}, which is no error class")
    return lambda error: isinstance(error, classes)


def _check_on_error(where: str, value: object) -> None:
    if isinstance(value, type) or not (callable(value) or isinstance(value, Decision)):
        raise ConfigError(
            f"{where} is {value!r}, not a decision such as Park() or a function from a Failure "
            "to one"
        )


def _check_unlimited(where: str, backoff: Backoff) -> None:
    if backoff.timeout_seconds is not None:
        raise ConfigError(
            f"{where} has timeout_seconds, which must be known before the first attempt; give it "
            "to Policy.backoff"
        )


def _check_inner(event_type: object, policy: object) -> None:
    where = f"Policy.event_types[{event_type!r}]"
    if not isinstance(event_type, type | str):
        raise ConfigError(f"{where}: give event classes or type names")
    if not isinstance(policy, Policy):
        raise ConfigError(f"{where} is {policy!r}, not a Policy")
    if policy.event_types or policy.breaker or policy.budget or policy.limits != Limits():
        raise ConfigError(
            f"{where}: event_types, breaker, budget and limits are for the whole projection; "
            "give them to the outer policy"
        )
