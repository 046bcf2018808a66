"""Tries events, and asks the policy about those that fail: what all ways of delivery share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from traceback import clear_frames

from holdfast.model.definition import Definition, lane_of
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.failure import ProcessDied
from holdfast.model.foreign_feed import undecodable_reason
from holdfast.model.policy import Fatal, Park, Skip
from holdfast.runtime.engines.engine import Applies, EventFailed
from holdfast.runtime.engines.factory import engine_of
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.recovery import GiveUp, Recovery, RetryAfter
from holdfast.runtime.signals import CallbackFailed, Recovered, Signal
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.queue_items import FailedAttempt, ParkedEvent
from holdfast.runtime.store.session import Session


class Blocked(Exception):
    """An event can't be passed now; everything before it is committed."""

    def __init__(self, event: RawEvent, verdict: RetryAfter | GiveUp) -> None:
        super().__init__(event, verdict)
        self.event, self.verdict = event, verdict


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a drain ends before it is through: when the lane is due next, and what to raise."""

    due_at: datetime | None
    halted: Blocked | None = None


class Attempts:
    """Tries the events of one projection on one session.

    `blamed`: events that have failed by what happened to the process or to the store.
    """

    def __init__(
        self,
        definition: Definition,
        *,
        names: tuple[str, str],
        types: EventTypes,
        session: Session,
        judge: Recovery,
        caller: Invoker,
        clock: Clock,
        emit: Callable[[Signal], None],
        blamed: dict[int, BaseException],
    ) -> None:
        self.definition, self.session, self.judge = definition, session, judge
        self.clock, self.emit, self.names = clock, emit, names
        self._types, self._caller, self._blamed = types, caller, blamed
        self.engine = engine_of(definition, types, session, caller)

    def lane_of(self, event: RawEvent) -> str:
        """The lane of an event that is in no batch."""
        return lane_of(self.definition, self._types, event)

    def attempt(self, batch: Applies, event: RawEvent) -> None:
        """Tries one event; raises EventFailed."""
        wait = self.judge.pending(event)
        if wait is not None:
            raise Blocked(event, wait)
        if event.position in self._blamed:
            raise EventFailed(event, self._blamed[event.position])
        if (reason := undecodable_reason(event)) is not None:
            raise EventFailed(event, reason)
        if batch.apply(event):
            self.judge.succeeded()

    def rule(
        self, event: RawEvent, lane: str, error: BaseException, batch: Applies | None = None
    ) -> Skip | Park | None:
        """Asks the policy about a failed event; None if the fallback has handled it.

        Raises Blocked where the event is to be tried again, or stops the projection.
        """
        if isinstance(error, MemoryError):
            # What its handler still holds: whatever comes next needs memory, too.
            clear_frames(error.__traceback__)
        blamed = self._blamed.pop(event.position, None)
        if isinstance(blamed, ProcessDied):
            known = self.judge.record_of(event)
            self.judge.adopt(event, replace(known, attempts=known.attempts + blamed.deaths - 1))
        verdict = self.judge.judge(event, lane, error)
        if isinstance(verdict, GiveUp):
            if batch is not None and self._falls_back(batch, event, verdict):
                return None
            if not isinstance(verdict.decision, Fatal):
                return verdict.decision
        raise Blocked(event, verdict)

    def set_back(
        self, batch: Applies | None, lane: str, item: ParkedEvent, error: BaseException
    ) -> tuple[FailedAttempt | None, Stop | None]:
        """What becomes of an item that failed; without a setback, the fallback has handled it."""
        now = self.clock.now()
        retries = item.retries + 1
        self.judge.adopt(item.event, item.record)
        try:
            decision = self.rule(item.event, lane, error, batch)
        except Blocked as halted:
            record = self.judge.settled(item.event) or item.record
            if isinstance(halted.verdict, GiveUp):
                # Left as it was, to be tried when the projection runs again.
                return FailedAttempt(item.id, item.status, record, item.retries, None), Stop(
                    now, halted
                )
            at = now + timedelta(seconds=halted.verdict.seconds)
            stops_all = halted if halted.verdict.reason == "breaker" else None
            return FailedAttempt(item.id, "failed", record, retries, at), Stop(at, stops_all)
        if decision is None:
            return None, None
        record = self.judge.settled(item.event) or item.record
        if isinstance(decision, Skip):
            return FailedAttempt(item.id, "skipped", record, retries, None), None
        if decision.retry is not None and decision.retry.allows(retries):
            at = now + timedelta(seconds=decision.retry.delay(retries + 1))
            return FailedAttempt(item.id, "failed", record, retries, at), Stop(at)
        return FailedAttempt(item.id, "dead", record, retries, None), Stop(None)

    def told(self, events: Sequence[RawEvent]) -> None:
        """The transaction is in, with these events applied: does what may only happen now."""
        for callback in self.engine.committed():
            try:
                self._caller.call(callback)
            except Exception as error:
                text = self.definition.masked(text_of(error))
                self.emit(CallbackFailed(*self.names, type(error).__name__, text))
        if self.judge.has_records:
            for event in events:
                record = self.judge.settled(event)
                if record is not None:
                    self.emit(Recovered(*self.names, event.position, record.attempts + 1))

    def _falls_back(self, batch: Applies, event: RawEvent, given: GiveUp) -> bool:
        fallback = self.definition.policy_of(event.type).fallback
        if fallback is None or isinstance(given.error, ProcessDied):
            return False
        try:
            batch.apply(event, fallback)
        except EventFailed as failed:
            worse = failed.error
            given.error.add_note(f"The fallback failed too: {type(worse).__name__}: {worse}")
            self.judge.renew(event, given.error)
            return False
        self.judge.succeeded()
        return True
