"""Tries single events, and carries out what the policy decides about those that fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from traceback import clear_frames

from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.failure import ProcessDied
from holdfast.model.foreign_feed import undecodable_reason
from holdfast.model.policy import Fatal, Skip
from holdfast.runtime.engines.engine import Applies, EventFailed
from holdfast.runtime.failure.recovery import GiveUp, NextStep, Recovery, RetryAfter
from holdfast.runtime.signals import Signal
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.queue_items import FailedAttempt, ParkedEvent


class Blocked(Exception):
    """An event can't be passed now; everything before it is committed."""

    def __init__(self, event: RawEvent, step: NextStep) -> None:
        super().__init__(event, step)
        self.event, self.step = event, step


@dataclass(frozen=True, slots=True)
class LaneStop:
    """Why no more of a lane is tried: when it is due again, and what blocks the projection."""

    due_at: datetime | None
    blocked: Blocked | None = None


class Attempts:
    """Tries events of one projection, one by one."""

    def __init__(
        self,
        definition: Definition,
        *,
        names: tuple[str, str],
        types: EventTypes,
        recovery: Recovery,
        clock: Clock,
        emit: Callable[[Signal], None],
    ) -> None:
        self.definition, self.names, self.types = definition, names, types
        self.recovery, self.clock, self.emit = recovery, clock, emit

    def attempt(self, batch: Applies, event: RawEvent) -> None:
        """Tries one event; raises EventFailed, or Blocked while it has to wait."""
        known = self.recovery.known.get(event.position)
        if known is not None:
            if known.retry_after is not None:
                raise Blocked(event, known.retry_after)
            if known.blamed_for is not None:
                raise EventFailed(event, known.blamed_for)
        if (reason := undecodable_reason(event)) is not None:
            raise EventFailed(event, reason)
        if batch.apply(event):
            self.recovery.state.failures_in_a_row = 0

    def decide(
        self,
        event: RawEvent,
        lane: str,
        error: BaseException,
        batch: Applies | None = None,
        *,
        retries: int = 0,
    ) -> GiveUp | None:
        """Asks the policy about a failed event; None if the fallback has handled it.

        An event that is given up is skipped or parked. `retries`: as for Recovery.

        Raises Blocked where the event is to be tried again, or stops the projection.
        """
        if isinstance(error, MemoryError):
            # Frees what its handler still holds: the next step needs memory too.
            clear_frames(error.__traceback__)
        known = self.recovery.known.get(event.position)
        if known is not None:
            if isinstance(known.blamed_for, ProcessDied):
                attempts = known.history.attempts + known.blamed_for.deaths - 1
                known.history = replace(known.history, attempts=attempts)
            known.blamed_for = None
        step = self.recovery.decide(event, lane, error, retries=retries)
        if isinstance(step, GiveUp):
            if batch is not None and self._falls_back(batch, event, step):
                return None
            if not isinstance(step.decision, Fatal):
                self.recovery.known[event.position].given_up = step
                return step
        raise Blocked(event, step)

    def fail_item(
        self, batch: Applies | None, lane: str, item: ParkedEvent, error: BaseException
    ) -> tuple[FailedAttempt | None, LaneStop | None]:
        """What becomes of an item that failed; without an attempt, the fallback has handled it."""
        now, retries = self.clock.now(), item.retries + 1
        self.recovery.adopt(item.event, item.history)
        try:
            given_up = self.decide(item.event, lane, error, batch, retries=retries)
        except Blocked as blocked:
            history = self.recovery.forget(item.event) or item.history
            if isinstance(blocked.step, RetryAfter):
                at = now + timedelta(seconds=blocked.step.seconds)
                stops_all = blocked if blocked.step.reason == "breaker" else None
                failed = FailedAttempt(item.id, "failed", history, retries, at)
                return failed, LaneStop(at, stops_all)
            # Left as it was, to be tried when the projection runs again.
            failed = FailedAttempt(item.id, item.status, history, item.retries, None)
            return failed, LaneStop(now, blocked)
        if given_up is None:
            return None, None
        history = self.recovery.forget(item.event) or item.history
        if isinstance(given_up.decision, Skip):
            return FailedAttempt(item.id, "skipped", history, retries, None), None
        if given_up.park_seconds is not None:
            at = now + timedelta(seconds=given_up.park_seconds)
            return FailedAttempt(item.id, "failed", history, retries, at), LaneStop(at)
        return FailedAttempt(item.id, "dead", history, retries, None), LaneStop(None)

    def lose_item(self, lane: str, item: ParkedEvent, error: BaseException) -> FailedAttempt:
        """What becomes of an item whose worker is lost, if another event may be the cause.

        It is tried again at once, and no attempt is counted.
        """
        now = self.clock.now()
        history = item.history.after(error, now)
        self.recovery.report_lost(item.event, lane, history)
        history = replace(history, attempts=item.history.attempts)
        return FailedAttempt(item.id, "failed", history, item.retries, now)

    def _falls_back(self, batch: Applies, event: RawEvent, step: GiveUp) -> bool:
        fallback = self.definition.policy_of(event.type).fallback
        if fallback is None or isinstance(step.error, ProcessDied):
            return False
        try:
            batch.apply(event, fallback)
        except EventFailed as failed:
            worse = failed.error
            step.error.add_note(f"The fallback failed too: {type(worse).__name__}: {worse}")
            self.recovery.amend(event, step.error)
            return False
        self.recovery.state.failures_in_a_row = 0
        return True
