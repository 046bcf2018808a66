"""One projection on one feed: read, apply, commit, and again.

The life of a runner:

    stand by ──lease──▶ lead ──stop──▶ release, end
       ▲                 │ │
       └──fenced, store──┘ └──an event fails──▶ record the fault, end
          away (wait)

Everything an event causes is in one transaction with the checkpoint, which moves only under the
runner's epoch. So a runner may be killed, frozen or cut off at any point, and the next one goes
on from exactly what is committed.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from holdfast.core.apply import Applier
from holdfast.core.codec import EventTypes
from holdfast.core.engines import EventFailed, StoreFailedAt
from holdfast.core.errors import Fenced, HoldfastError, ProjectionFaulted, StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.ports import (
    Checkpoint,
    Clock,
    Fault,
    Lease,
    Leases,
    Session,
    Source,
    TransactionEnded,
)
from holdfast.core.projection import Definition
from holdfast.core.signals import (
    Committed,
    Faulted,
    LeaseLost,
    PollFailed,
    Signal,
    Signals,
    Started,
    Stopped,
)

CHUNK_EVENTS = 2_000
"""Events per read."""

BATCH_EVENTS = 10_000
"""Events per transaction while catching up; when live, what is there."""

BATCH_BYTES = 16 * 2**20
"""Payload bytes that a batch gathers before it is applied."""

STANDBY_SECONDS = 0.25
"""How often a runner without a lease asks for it."""

STRIKES = 3
"""A handler that loses the connection so often at one event has caused it."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a runner is connected to."""

    feed: str
    open_session: Callable[[], Session]
    open_source: Callable[[Session], Source]
    leases: Leases
    types: EventTypes
    clock: Clock
    signals: Signals


class Runner:
    """Runs one projection until it is stopped, or faulted, or (with `until`) has arrived."""

    def __init__(self, definition: Definition, wiring: Wiring, *, until: int | None = None) -> None:
        self.definition = definition
        self.fault: Fault | None = None
        self._wiring, self._until = wiring, until
        self._stop = threading.Event()
        self._arrived = False
        self._checkpoint: Checkpoint | None = None
        self._failures = 0
        self._suspect: RawEvent | None = None
        self._strikes = 0
        self._mean_event_bytes = 0.0

    def stop(self) -> None:
        """Asks it to commit what it has begun and end. The feed must be woken as well."""
        self._stop.set()

    def run(self) -> None:
        """Blocks until the runner ends; afterwards `fault` says if something is wrong."""
        while not (self._stop.is_set() or self._arrived or self.fault):
            try:
                self._lead()
            except Fenced as fenced:
                self._emit(LeaseLost(*self._names, str(fenced)))
                self._stop.wait(STANDBY_SECONDS)
            except StoreUnavailable as error:
                self._back_off(error)
            except Exception as error:
                self._give_up(_fault(error, self._wiring.clock))

    def crash(self, error: BaseException) -> None:
        """The thread ends with an error that should not be: a fault, lest it pass unnoticed."""
        self.fault = _fault(error, self._wiring.clock)

    def raise_fault(self) -> None:
        """Raises ProjectionFaulted if the runner ended with a fault; its cause is the error."""
        if self.fault is not None:
            message = fault_message(self.definition.name, self.fault)
            raise ProjectionFaulted(message) from self.fault.error

    def _lead(self) -> None:
        """Takes the lease, if it is free, and works until something ends it."""
        with closing(self._wiring.open_session()) as session:
            found = self._stand_by(session)
            if found is None:
                return
            checkpoint, lease = found
            try:
                self._checkpoint = session.take_over(checkpoint)
                self._lead_with(session, self._checkpoint, lease)
            finally:
                lease.release()

    def _stand_by(self, session: Session) -> tuple[Checkpoint, Lease] | None:
        """Waits for the lease; None when asked to stop, or when the other runner has arrived."""
        while True:
            checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
            lease = self._wiring.leases.acquire(checkpoint)
            if lease is not None:
                return checkpoint, lease
            self._failures = 0
            self._arrived = self._is_arrived(checkpoint)
            if self._arrived or self._stop.wait(STANDBY_SECONDS):
                return None

    def _lead_with(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> None:
        self._emit(Started(*self._names, checkpoint.position, checkpoint.epoch))
        applier = Applier(
            self.definition,
            types=self._wiring.types,
            session=session,
            checkpoint=checkpoint,
            clock=self._wiring.clock,
            stopping=self._stop.is_set,
        )
        with closing(applier):
            try:
                session.prepare(self.definition)
                self._follow(session, applier, lease)
            except EventFailed as failed:
                self._give_up(_fault(failed.error, self._wiring.clock, failed.event))
            except StoreFailedAt as failed:
                self._strike(failed, applier)
            except Fenced:
                raise
            except StoreUnavailable:
                self._note_progress(applier)
                raise
            except Exception as error:
                self._give_up(_fault(error, self._wiring.clock))
            else:
                session.release(applier.checkpoint)
                self._emit(Stopped(*self._names, applier.checkpoint.position))

    def _follow(self, session: Session, applier: Applier, lease: Lease) -> None:
        """Applies what the feed has, then waits for more; returns when asked to stop."""
        poll = self.definition.poll
        source = self._wiring.open_source(session)
        while not self._stop.is_set():
            if not lease.held:
                raise Fenced(f"projection {self.definition.name!r} lost its lease")
            events, at_head, held = self._read_batch(source, applier.checkpoint.position)
            if events:
                self._apply(applier, events)
            else:
                session.check_epoch(applier.checkpoint)
            self._failures = 0
            if self._is_arrived(applier.checkpoint):
                self._arrived = True
                return
            if at_head:
                busy = bool(events) or held
                source.wait(poll.interval_seconds if busy else poll.empty_backoff_seconds)

    def _read_batch(self, source: Source, after: int) -> tuple[list[RawEvent], bool, bool]:
        """Events to apply together, whether the feed has no more, and whether it is held."""
        events: list[RawEvent] = []
        size = 0
        while len(events) < BATCH_EVENTS and size < BATCH_BYTES and not self._stop.is_set():
            limit = self._chunk_limit()
            chunk = source.read(events[-1].position if events else after, limit)
            events.extend(chunk.events)
            chunk_bytes = sum(len(event.data) for event in chunk.events)
            size += chunk_bytes
            if chunk.events:
                self._mean_event_bytes = chunk_bytes / len(chunk.events)
            if chunk.held or len(chunk.events) < limit:
                return events, True, chunk.held
        return events, False, False

    def _chunk_limit(self) -> int:
        """Fewer events at a time when they are large, so that memory stays bounded."""
        fitting = int(BATCH_BYTES / 4 / max(self._mean_event_bytes, 1.0))
        return max(1, min(CHUNK_EVENTS, fitting))

    def _apply(self, applier: Applier, events: Sequence[RawEvent]) -> None:
        clock = self._wiring.clock
        started = clock.monotonic()
        applied = 0
        for part in self._around_suspect(events):
            if not self._stop.is_set():
                applied += applier.apply(part)
        self._suspect, self._strikes = None, 0
        seconds = clock.monotonic() - started
        self._emit(Committed(*self._names, applier.checkpoint.position, applied, seconds))

    def _around_suspect(self, events: Sequence[RawEvent]) -> list[Sequence[RawEvent]]:
        """Sets the suspect apart, so that what precedes it is committed before it is tried."""
        if self._suspect is None:
            return [events]
        positions = [event.position for event in events]
        if self._suspect.position not in positions:
            return [events]
        at = positions.index(self._suspect.position)
        return [part for part in (events[:at], events[at : at + 1], events[at + 1 :]) if part]

    def _note_progress(self, applier: Applier) -> None:
        """Failures with a commit between them are not in a row."""
        if self._checkpoint is not None and applier.checkpoint != self._checkpoint:
            self._failures = 0

    def _strike(self, failed: StoreFailedAt, applier: Applier) -> None:
        """The store failed inside a handler. Once is the store; again and again is the event."""
        self._note_progress(applier)
        known = self._suspect is not None and self._suspect.position == failed.event.position
        self._strikes = self._strikes + 1 if known else 1
        self._suspect = failed.event
        if failed.error.connection_lost and self._strikes >= STRIKES:
            self._give_up(_fault(failed.error, self._wiring.clock, failed.event))
        else:
            raise failed.error

    def _back_off(self, error: StoreUnavailable) -> None:
        self._failures += 1
        poll = self.definition.poll
        if poll.max_consecutive_failures and self._failures >= poll.max_consecutive_failures:
            self._give_up(_fault(error, self._wiring.clock, self._suspect))
            return
        delay = poll.failure_backoff.delay(self._failures)
        self._emit(PollFailed(*self._names, self._failures, str(error), delay))
        self._stop.wait(delay)

    def _give_up(self, fault: Fault) -> None:
        """Ends the runner with a fault, written to the store if it can be reached."""
        if self._checkpoint is not None:
            # Not the runner's own session: its connection may be what has failed.
            with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
                session.record_fault(self._checkpoint, fault)
        self.fault = fault
        self._emit(Faulted(*self._names, fault))

    def _is_arrived(self, checkpoint: Checkpoint) -> bool:
        return self._until is not None and checkpoint.position >= self._until

    @property
    def _names(self) -> tuple[str, str]:
        return self.definition.name, self._wiring.feed

    def _emit(self, signal: Signal) -> None:
        self._wiring.signals.emit(signal)


def fault_message(projection: str, fault: Fault) -> str:
    """A fault in one sentence, with what to do next."""
    at = "" if fault.position is None else f" at position {fault.position}"
    what = "" if fault.event_type is None else f" on {fault.event_type!r} event {fault.event_id}"
    return (
        f"projection {projection!r} stopped{at}{what}: {fault.error_type}: {fault.error_message} "
        "(everything before it is committed; mend the cause, then start it again)"
    )


def _fault(error: BaseException, clock: Clock, event: RawEvent | None = None) -> Fault:
    return Fault(
        error_type=type(error).__name__,
        error_message=_text(error),
        error_stacktrace="".join(traceback.format_exception(error)),
        at=clock.now(),
        position=event.position if event else None,
        event_id=event.id if event else None,
        event_type=event.type if event else None,
        needs_reset=isinstance(error, TransactionEnded),
        error=error,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:
        return f"(its text can't be had: {type(worse).__name__})"
