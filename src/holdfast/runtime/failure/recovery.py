"""What to do about a failed event: the policy's decision, and what it takes to carry it out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, assert_never

import msgspec

from holdfast.model.definition import Definition
from holdfast.model.event import Event, RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.failure import Failure
from holdfast.model.policy import Decision, Fatal, Final, Park, Policy, Retry, Skip
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.signals import BreakerOpened, Decided, Failed, Retrying, Signal
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.queue_items import FailureHistory, attempt_of


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try the same event again, after so many seconds."""

    seconds: float
    reason: Literal["retry", "breaker"]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The attempts are over."""

    decision: Final
    error: BaseException


NextStep = RetryAfter | GiveUp


class PolicyFailed(Exception):
    """A function of the policy failed, so that its projection stops; shows both errors."""


class PolicyState:
    """What the parts of a policy remember of a projection's failures, in all its threads."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.waits: deque[tuple[float, float]] = deque()


class Recovery:
    """Asks the policy of one runner's projection, and keeps what its parts need to remember."""

    def __init__(
        self,
        definition: Definition,
        *,
        feed: str,
        types: EventTypes,
        caller: Invoker,
        clock: Clock,
        emit: Callable[[Signal], None],
        memory: PolicyState | None = None,
    ) -> None:
        self._definition, self._names = definition, (definition.name, feed)
        self._types, self._caller, self._clock, self._emit = types, caller, clock, emit
        self._records: dict[int, FailureHistory] = {}
        self._pending: dict[int, RetryAfter] = {}
        self._memory = memory or PolicyState()

    def record_of(self, event: RawEvent) -> FailureHistory:
        """What is known of an event's failures in this process."""
        return self._records.get(event.position, FailureHistory())

    def adopt(self, event: RawEvent, record: FailureHistory) -> None:
        """Goes on from a record that was kept in the queue or with the checkpoint."""
        self._records[event.position] = record

    @property
    def has_records(self) -> bool:
        """Whether events have failed that are neither applied nor in the queue."""
        return bool(self._records)

    def recorded(self, events: Iterable[RawEvent]) -> list[RawEvent]:
        """Those of the events that have failed before."""
        return [event for event in events if event.position in self._records]

    def last_error(self, event: RawEvent) -> str | None:
        """The type of the error that an event has failed with last."""
        history = self.record_of(event).history
        return history[-1].error_type if history else None

    def renew(self, event: RawEvent, error: BaseException) -> None:
        """More is known about the last failed attempt."""
        record = self.record_of(event)
        last = attempt_of(error, record.history[-1].at)
        self._records[event.position] = replace(record, history=(*record.history[:-1], last))

    def pending(self, event: RawEvent) -> RetryAfter | None:
        """What is left of the wait before the event's next attempt."""
        return self._pending.get(event.position)

    @property
    def awaited(self) -> Collection[int]:
        """The positions of events that have to wait before their next attempt."""
        return self._pending.keys()

    def waited(self, event: RawEvent, seconds: float) -> None:
        """So many seconds of an event's wait are over."""
        wait = self._pending.pop(event.position, None)
        if wait is not None and wait.seconds > seconds:
            self._pending[event.position] = replace(wait, seconds=wait.seconds - seconds)

    def succeeded(self) -> None:
        """An event was applied: failures before and after it are not in a row."""
        self._memory.in_a_row = 0

    def settled(self, event: RawEvent) -> FailureHistory | None:
        """The event needs no more decisions; returns its record, if it had failed."""
        self._pending.pop(event.position, None)
        return self._records.pop(event.position, None)

    def judge(self, event: RawEvent, lane: str, error: BaseException) -> NextStep:
        """Decides about one failed attempt."""
        now = self._clock.now()
        record = self._records[event.position] = self.record_of(event).after(error, now)
        failure = self._failure(event, lane, error, record, now)
        self._emit(
            Failed(
                *self._names,
                event.position,
                event.type,
                lane,
                failure.attempt,
                type(error).__name__,
                self._definition.masked(record.history[-1].error_message),
            )
        )
        verdict = self._verdict(failure)
        if isinstance(verdict, RetryAfter):
            self._pending[event.position] = verdict
        decided = verdict.reason if isinstance(verdict, RetryAfter) else _name(verdict.decision)
        self._emit(Decided(*self._names, event.position, decided))
        return verdict

    def _verdict(self, failure: Failure) -> NextStep:
        policy = self._definition.policy
        self._memory.in_a_row += 1
        breaker = policy.breaker
        if breaker is not None and self._memory.in_a_row >= breaker.failures:
            self._emit(BreakerOpened(*self._names, failure.position, breaker.pause_seconds))
            return RetryAfter(breaker.pause_seconds, "breaker")
        leaf = self._definition.policy_of(failure.event.type)
        try:
            decision = self._ask(leaf, failure)
        except BaseException as worse:
            return GiveUp(Fatal(), _undecided("on_error", worse, failure))
        if isinstance(decision, Retry):
            return self._again(decision, leaf, failure)
        return GiveUp(decision, failure.error)

    def _ask(self, policy: Policy, failure: Failure) -> Decision:
        if isinstance(policy.on_error, Decision):
            return policy.on_error
        decision = self._caller.call(policy.on_error, failure)
        if not isinstance(decision, Decision):
            raise TypeError(
                f"it returned {decision!r}, not a decision: Fatal(), Skip(), Retry() or Park()"
            )
        return decision

    def _again(self, retry: Retry, policy: Policy, failure: Failure) -> NextStep:
        backoff = retry.backoff or policy.backoff
        exhausted = policy.exhausted if retry.exhausted is None else retry.exhausted
        if not backoff.allows(failure.attempt):
            return GiveUp(exhausted, failure.error)
        try:
            seconds = backoff.delay(failure.attempt, failure)
        except Exception as worse:
            return GiveUp(Fatal(), _undecided("Backoff.schedule", worse, failure))
        if not self._affords(seconds):
            return GiveUp(exhausted, failure.error)
        self._emit(Retrying(*self._names, failure.position, failure.attempt + 1, seconds))
        return RetryAfter(seconds, "retry")

    def _affords(self, seconds: float) -> bool:
        """Whether the retry budget has so many seconds left, which are then taken from it."""
        budget = self._definition.policy.budget
        if budget is None:
            return True
        now, waits = self._clock.monotonic(), self._memory.waits
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
        record: FailureHistory,
        now: datetime,
    ) -> Failure:
        return Failure(
            event=_decoded(event, self._types),
            error=error,
            attempt=record.attempts,
            position=event.position,
            projection=self._definition.name,
            lane=lane,
            first_failed_at=record.first_failed_at or now,
            failed_at=now,
        )


def _undecided(function: str, worse: BaseException, failure: Failure) -> PolicyFailed:
    undecided = PolicyFailed(
        f"{function} of projection {failure.projection!r} failed with "
        f"{type(worse).__name__}: {text_of(worse)}, when it was asked about "
        f"{type(failure.error).__name__}: {text_of(failure.error)}"
    )
    undecided.__cause__ = worse
    if worse is not failure.error and worse.__context__ is None:
        worse.__context__ = failure.error
    return undecided


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
            data=_plain(raw.data),
            metadata=_plain(raw.metadata),
            recorded_at=raw.recorded_at,
        )


def _plain(text: str) -> Any:
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
