"""What to do about a failed event: the policy's decision, and what is known of the event.

A failed event that is neither applied nor in the queue is known here, by its position, until it is
one of the two: its history, the wait before its next attempt, the decision about it, and an error
that it is blamed for without an attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, assert_never

import msgspec

from holdfast.model.definition import Definition
from holdfast.model.event import Event, RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.failure import Failure
from holdfast.model.policy import Decision, Fatal, Final, Park, Policy, Retry, Skip
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.signals import BreakerOpened, Failed, Signal, Waited
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.faults import Fault, fault_of, text_of
from holdfast.runtime.store.queue_items import NO_FAILURE, FailureHistory, attempt_of


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The same event is tried again after a wait."""

    seconds: float
    reason: Literal["retry", "breaker"]
    max_attempts: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The attempts are over; in the queue a parked event is tried again after `park_seconds`."""

    decision: Final
    error: BaseException
    park_seconds: float | None = field(default=None, compare=False)


NextStep = RetryAfter | GiveUp


class PolicyFailed(Exception):
    """A function of the policy failed, so that its projection stops; shows both errors."""


@dataclass(slots=True)
class FailedEvent:
    """What is known of an event that has failed, and is neither applied nor in the queue."""

    history: FailureHistory = NO_FAILURE
    retry_after: RetryAfter | None = None
    """What is left of the wait before its next attempt."""
    given_up: GiveUp | None = None
    """What becomes of it when it comes again, if it is skipped or parked."""
    blamed_for: BaseException | None = None
    """The death of a process, or a failure of the store, that it has caused."""


@dataclass(slots=True)
class PolicyState:
    """What breaker and retry budget remember of a projection's failures, in all its threads."""

    failures_in_a_row: int = 0
    waits: deque[tuple[float, float]] = field(default_factory=deque)
    """Each wait before a retry: when it was granted, and its seconds."""


class Recovery:
    """Asks the policy of one projection about failed events, and remembers them."""

    def __init__(
        self,
        definition: Definition,
        *,
        feed: str,
        types: EventTypes,
        invoker: Invoker,
        clock: Clock,
        emit: Callable[[Signal], None],
        state: PolicyState | None = None,
    ) -> None:
        self._definition, self._names = definition, (definition.name, feed)
        self._types, self._invoker, self._clock, self._emit = types, invoker, clock, emit
        self.known: dict[int, FailedEvent] = {}
        """Failed events by position."""
        self.state = state or PolicyState()

    def history_of(self, event: RawEvent) -> FailureHistory:
        known = self.known.get(event.position)
        return known.history if known else NO_FAILURE

    def adopt(self, event: RawEvent, history: FailureHistory) -> None:
        """Goes on from a history that was stored."""
        self._known(event.position).history = history

    def amend(self, event: RawEvent, error: BaseException) -> None:
        """Replaces the error of the last failed attempt, of which more is known now."""
        known = self._known(event.position)
        *earlier, last = known.history.last_attempts
        last_attempts = (*earlier, attempt_of(error, last.at))
        known.history = replace(known.history, last_attempts=last_attempts)

    def blame(self, position: int, error: BaseException) -> None:
        """The event at a position has caused an error, and fails without another attempt."""
        self._known(position).blamed_for = error

    def waited(self, event: RawEvent, left: float) -> None:
        """A part of the wait before an event's next attempt is over, and some seconds are left."""
        known = self.known.get(event.position)
        if known is not None and (wait := known.retry_after) is not None:
            known.retry_after = replace(wait, seconds=left) if left > 0 else None
            self._emit(Waited(*self._names, wait.seconds - left))

    def end_waits(self) -> None:
        """Has every event that waits for a retry tried at once."""
        for known in list(self.known.values()):
            if known.retry_after is not None and known.retry_after.reason == "retry":
                known.retry_after = None

    def end_wait(self, event: RawEvent) -> None:
        """The event is tried again at once, because an operator has changed something."""
        known = self.known.get(event.position)
        if known is not None:
            known.retry_after = None

    def forget(self, event: RawEvent) -> FailureHistory | None:
        """The event is applied or in the queue; returns its history, if it had failed."""
        known = self.known.pop(event.position, None)
        return known.history if known and known.history.attempts else None

    def fault_of(self, event: RawEvent, step: NextStep) -> Fault:
        """Why an event stops the projection, or is tried again."""
        history = self.history_of(event)
        last = history.last_attempts[-1] if history.last_attempts else None
        if isinstance(step, GiveUp):
            fault = fault_of(step.error, self._clock, event)
            fault = replace(fault, at=last.at if last else fault.at)
        else:
            assert last is not None
            fault = Fault(
                error_type=last.error_type,
                error_message=last.error_message,
                error_stacktrace=last.error_stacktrace,
                at=last.at,
                position=event.position,
                event_id=event.id,
                event_type=event.type,
                limit=step.max_attempts,
            )
        return replace(fault, attempts=history.attempts, since=history.first_failed_at)

    def decide(
        self, event: RawEvent, lane: str, error: BaseException, *, retries: int = 0
    ) -> NextStep:
        """Decides about one failed attempt; `retries`: how many of them were from the queue."""
        now, known = self._clock.now(), self._known(event.position)
        known.history = history = known.history.after(error, now)
        step = self._next_step(self._failure(event, lane, error, history, now))
        max_attempts: int | None = history.attempts
        if isinstance(step, RetryAfter):
            known.retry_after = step
            max_attempts = step.max_attempts
        elif isinstance(step.decision, Park) and (retry := step.decision.retry) is not None:
            if retry.max_attempts is None:
                max_attempts = None
            else:
                max_attempts = history.attempts - retries + retry.max_attempts
            if retry.allows(retries):
                step = replace(step, park_seconds=retry.delay(retries + 1))
        self._emit(self._failed(event, lane, history, step, max_attempts))
        return step

    def report_lost(self, event: RawEvent, lane: str, history: FailureHistory) -> None:
        """Tells of a failed attempt that does not count: the event is tried again at once."""
        self._emit(self._failed(event, lane, history, RetryAfter(0.0, "retry"), None))

    def _failed(
        self,
        event: RawEvent,
        lane: str,
        history: FailureHistory,
        step: NextStep,
        max_attempts: int | None,
    ) -> Failed:
        last, is_masked = history.last_attempts[-1], self._definition.mask is not None
        return Failed(
            *self._names,
            event.position,
            str(event.id),
            event.type,
            event.stream,
            lane,
            attempt=history.attempts,
            max_attempts=max_attempts,
            decision=step.reason if isinstance(step, RetryAfter) else _name(step.decision),
            delay_seconds=step.seconds if isinstance(step, RetryAfter) else step.park_seconds,
            error_type=last.error_type,
            error=self._definition.masked(last.error_message),
            stacktrace="(masked)" if is_masked else last.error_stacktrace,
        )

    def _known(self, position: int) -> FailedEvent:
        return self.known.setdefault(position, FailedEvent())

    def _next_step(self, failure: Failure) -> NextStep:
        self.state.failures_in_a_row += 1
        breaker = self._definition.policy.breaker
        if breaker is not None and self.state.failures_in_a_row >= breaker.failures:
            self._emit(BreakerOpened(*self._names, failure.position, breaker.pause_seconds))
            return RetryAfter(breaker.pause_seconds, "breaker")
        policy = self._definition.policy_of(failure.event.type)
        try:
            decision = self._ask(policy, failure)
        except BaseException as worse:
            return GiveUp(Fatal(), _policy_failed("on_error", worse, failure))
        if isinstance(decision, Retry):
            return self._retry(decision, policy, failure)
        return GiveUp(decision, failure.error)

    def _ask(self, policy: Policy, failure: Failure) -> Decision:
        if isinstance(policy.on_error, Decision):
            return policy.on_error
        decision = self._invoker.call(policy.on_error, failure)
        if not isinstance(decision, Decision):
            raise TypeError(
                f"it returned {decision!r}, not a decision: Fatal(), Skip(), Retry() or Park()"
            )
        return decision

    def _retry(self, retry: Retry, policy: Policy, failure: Failure) -> NextStep:
        backoff = policy.backoff
        if retry.backoff is not None:
            backoff = self._definition.tuning.backoff_of(retry.backoff)
        exhausted = policy.exhausted if retry.exhausted is None else retry.exhausted
        if not backoff.allows(failure.attempt):
            return GiveUp(exhausted, failure.error)
        try:
            seconds = backoff.delay(failure.attempt, failure)
        except Exception as worse:
            return GiveUp(Fatal(), _policy_failed("Backoff.schedule", worse, failure))
        if not self._takes_from_budget(seconds):
            return GiveUp(exhausted, failure.error)
        return RetryAfter(seconds, "retry", backoff.max_attempts)

    def _takes_from_budget(self, seconds: float) -> bool:
        """Takes a wait from the retry budget; False if that has not enough left."""
        budget = self._definition.policy.budget
        if budget is None:
            return True
        now, waits = self._clock.monotonic(), self.state.waits
        while waits and waits[0][0] <= now - budget.window_seconds:
            waits.popleft()
        if sum(waited for _, waited in list(waits)) + seconds > budget.seconds:
            return False
        if seconds > 0:
            waits.append((now, seconds))
        return True

    def _failure(
        self,
        event: RawEvent,
        lane: str,
        error: BaseException,
        history: FailureHistory,
        now: datetime,
    ) -> Failure:
        return Failure(
            event=_decoded(event, self._types),
            error=error,
            attempt=history.attempts,
            position=event.position,
            projection=self._definition.name,
            lane=lane,
            first_failed_at=history.first_failed_at or now,
            failed_at=now,
        )


def _policy_failed(function: str, worse: BaseException, failure: Failure) -> PolicyFailed:
    failed = PolicyFailed(
        f"{function} of projection {failure.projection!r} failed with "
        f"{type(worse).__name__}: {text_of(worse)}, when it was asked about "
        f"{type(failure.error).__name__}: {text_of(failure.error)}"
    )
    failed.__cause__ = worse
    if worse is not failure.error and worse.__context__ is None:
        worse.__context__ = failure.error
    return failed


def _decoded(raw: RawEvent, types: EventTypes) -> Event[Any]:
    try:
        return types.decode(raw)
    except Exception:
        return Event(
            position=raw.position,
            stream=raw.stream,
            version=raw.version,
            id=raw.id,
            type=raw.type,
            data=_as_json(raw.data),
            metadata=_as_json(raw.metadata),
            recorded_at=raw.recorded_at,
        )


def _as_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _name(decision: Final) -> str:
    match decision:
        case Fatal():
            return "fatal"
        case Skip():
            return "skip"
        case Park():
            return "park"
        case _:
            assert_never(decision)
