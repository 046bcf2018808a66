"""One projection on one feed: read, apply, commit, and again.

The life of a runner:

    stand by ──lease──▶ lead ──stop──▶ release, end
       ▲                 │ │ ▲
       └──fenced, store──┘ │ └──wait, holding the lease alone──┐
          away (wait)      ├──an event is to be tried again────┘
                           └──an event stops it──▶ record the fault, end

Everything an event causes is in one transaction with the checkpoint, which moves only under the
runner's epoch. So a runner may be killed, frozen or cut off at any point, and the next one goes
on from exactly what is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.core.apply import Applier
from holdfast.core.caller import Caller
from holdfast.core.codec import EventTypes
from holdfast.core.definition import Definition
from holdfast.core.drain import Drainer
from holdfast.core.engine import StoreFailedAt
from holdfast.core.errors import (
    Fenced,
    HoldfastError,
    ProjectionFaulted,
    StoreConflict,
    StoreUnavailable,
)
from holdfast.core.event import RawEvent
from holdfast.core.failure import ProcessDied
from holdfast.core.judge import Give, Judge, Wait
from holdfast.core.lanes import Lanes
from holdfast.core.ports import (
    Checkpoint,
    Clock,
    Fault,
    Lease,
    Leases,
    Revised,
    Session,
    Source,
    TransactionEnded,
)
from holdfast.core.queue import MAX_STACKTRACE_CHARACTERS, clean, text_of
from holdfast.core.signals import (
    Committed,
    Faulted,
    LeaseLost,
    Paused,
    PollFailed,
    PollRecovered,
    Resumed,
    Signal,
    Signals,
    Started,
    Stopped,
)
from holdfast.core.stint import Halted, Stint
from holdfast.core.traces import format_error

CHUNK_EVENTS = 2_000
"""Events per read."""

BATCH_EVENTS = 10_000
"""Events per transaction while catching up; when live, what is there."""

BATCH_BYTES = 16 * 2**20
"""Payload bytes that a batch gathers before it is applied."""

STANDBY_SECONDS = 0.25
"""How often a runner without a lease asks for it."""

LOOK_SECONDS = 2.0
"""How often a runner that waits for a retry looks for what people have changed."""

STRIKES = 3
"""A handler that loses the connection so often at one event has caused it."""

CONFLICT_STRIKES = 8
"""The same for deadlocks and serialisation failures, which others may cause."""

UNCLEAN_ENDS = 2
"""After so many deaths at one checkpoint, events are tried one at a time."""

DRAIN_LANES = 100
"""Lanes that are drained between two batches."""


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
        self.crashed = False
        self._wiring, self._until = wiring, until
        self._stop = threading.Event()
        self._arrived = False
        self._checkpoint: Checkpoint | None = None
        self._failures = 0
        self._suspect: RawEvent | None = None
        self._strikes = 0
        self._blamed: dict[int, BaseException] = {}
        self._alone_for = 0
        self._mean_event_bytes = 0.0
        self._caller = Caller()
        self._judge = self._new_judge()

    def stop(self) -> None:
        """Asks it to commit what it has begun and end. The feed must be woken as well."""
        self._stop.set()

    def run(self) -> None:
        """Blocks until the runner ends; afterwards `fault` says if something is wrong."""
        with closing(self._caller):
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
        self.fault, self.crashed = _fault(error, self._wiring.clock), True

    def raise_fault(self) -> None:
        """Raises ProjectionFaulted if the runner ended with a fault; its cause is the error."""
        if self.fault is not None:
            message = fault_message(self.definition.name, self.fault)
            raise ProjectionFaulted(message) from self.fault.error

    # Leading

    def _lead(self) -> None:
        """Takes the lease, if it is free, and works until something ends it."""
        session = self._wiring.open_session()
        try:
            found = self._stand_by(session)
            if found is None:
                return
            checkpoint, lease = found
            try:
                checkpoint = self._take_over(session, checkpoint)
                self._emit(Started(*self._names, checkpoint.position, checkpoint.epoch))
                while (wait := self._work(session, checkpoint, lease)) is not None:
                    # Nothing is held while nothing can be done, but the lease.
                    session.close()
                    self._rest(wait, lease)
                    session = self._wiring.open_session()
                    checkpoint = self._still_ours(session)
            finally:
                lease.release()
        finally:
            session.close()

    def _stand_by(self, session: Session) -> tuple[Checkpoint, Lease] | None:
        """Waits for the lease; None when asked to stop, or when the other runner has arrived."""
        while True:
            checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
            lease = self._wiring.leases.acquire(checkpoint)
            if lease is not None:
                return checkpoint, lease
            self._failures = 0
            self._arrived = self._until is not None and checkpoint.position >= self._until
            if self._arrived or self._stop.wait(STANDBY_SECONDS):
                return None

    def _take_over(self, session: Session, checkpoint: Checkpoint) -> Checkpoint:
        resumed = self._checkpoint is not None and self._checkpoint.epoch == checkpoint.epoch
        if not resumed:
            self._judge = self._new_judge()
        self._checkpoint = session.take_over(checkpoint, resumed=resumed)
        position = self._checkpoint.mark_position
        if position is not None:
            self._blamed[position] = ProcessDied(
                "the process ended while it worked on this event, and no other"
            )
        if position is not None or self._checkpoint.unclean_ends >= UNCLEAN_ENDS:
            self._alone_for = BATCH_EVENTS
        return self._checkpoint

    def _rest(self, wait: Wait, lease: Lease) -> None:
        """Waits; ends early when asked to stop, or when a person has changed something."""
        left = wait.seconds
        while not self._stop.wait(min(left, LOOK_SECONDS)):
            left -= LOOK_SECONDS
            if not lease.held:
                raise Fenced(f"projection {self.definition.name!r} lost its lease")
            if left <= 0:
                return
            with closing(self._wiring.open_session()) as session:
                now = self._still_ours(session)
            if self._checkpoint is not None and now.revision != self._checkpoint.revision:
                return

    def _still_ours(self, session: Session) -> Checkpoint:
        checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
        if self._checkpoint is None or checkpoint.epoch != self._checkpoint.epoch:
            raise Fenced(f"projection {self.definition.name!r} was taken over while it waited")
        return checkpoint

    def _work(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Wait | None:
        """Works until something ends it; returns a wait if the same event is to be tried again."""
        stint = Stint(
            self.definition,
            types=self._wiring.types,
            session=session,
            checkpoint=checkpoint,
            lanes=self._lanes(session, checkpoint),
            judge=self._judge,
            caller=self._caller,
            clock=self._wiring.clock,
            emit=self._emit,
            stopping=self._stop.is_set,
            blamed=self._blamed,
        )
        try:
            session.prepare(self.definition)
            self._follow(session, stint, lease)
        except Halted as halted:
            return self._halt(session, stint, halted)
        except StoreFailedAt as failed:
            self._strike(failed, stint)
        except Fenced:
            raise
        except StoreUnavailable:
            self._note_progress(stint)
            raise
        except Exception as error:
            self._give_up(_fault(error, self._wiring.clock))
        else:
            session.release(stint.checkpoint)
            self._emit(Stopped(*self._names, stint.checkpoint.position))
        return None

    def _halt(self, session: Session, stint: Stint, halted: Halted) -> Wait | None:
        verdict, event = halted.verdict, halted.event
        self._failures = 0
        if isinstance(verdict, Give):
            self._give_up(_fault(verdict.error, self._wiring.clock, event))
            return None
        what = "a retry of" if verdict.reason == "retry" else "the circuit breaker, then"
        until = self._wiring.clock.now() + timedelta(seconds=verdict.seconds)
        reason = f"{what} event {event.id} ({event.type!r}) at position {event.position}"
        session.note_wait(stint.checkpoint, until, reason)
        self._checkpoint = stint.checkpoint
        return verdict

    # Working

    def _follow(self, session: Session, stint: Stint, lease: Lease) -> None:
        """Applies what there is, then waits for more; returns when asked to stop."""
        source = self._wiring.open_source(session)
        self._check_head(source, stint.checkpoint)
        applier, drainer = Applier(stint), Drainer(stint)
        while not self._stop.is_set():
            if not lease.held:
                raise Fenced(f"projection {self.definition.name!r} lost its lease")
            try:
                if stint.checkpoint.paused_by is not None:
                    if not self._sit_out(session, stint, source):
                        return
                    continue
                self._drain(session, stint, drainer)
                events, at_head, held = self._read_batch(source, stint.checkpoint.position)
                if events:
                    self._apply(session, stint, applier, events)
                else:
                    session.check_epoch(stint.checkpoint)
            except Revised:
                self._revise(session, stint)
                continue
            self._recovered()
            if at_head:
                self._alone_for = 0
            if self._is_arrived(stint):
                self._arrived = True
                return
            if at_head:
                self._wait(source, stint, is_busy=bool(events) or held)

    def _check_head(self, source: Source, checkpoint: Checkpoint) -> None:
        head = source.head()
        if checkpoint.position > head:
            raise HoldfastError(
                f"it has come to position {checkpoint.position}, and feed {checkpoint.feed!r} ends "
                f"at {head}: has the feed been cut, or restored from an older copy? What was "
                f"appended since would be passed over; holdfast reset {checkpoint.projection} "
                "begins again"
            )

    def _sit_out(self, session: Session, stint: Stint, source: Source) -> bool:
        """Waits while the projection is paused; False where there is nobody to wait for."""
        by = str(stint.checkpoint.paused_by)
        if self._until is not None:
            error = HoldfastError(f"it is paused by {by}; holdfast resume {self.definition.name}")
            self.fault = _fault(error, self._wiring.clock)
            return False
        self._emit(Paused(*self._names, by))
        with suppress(Revised):
            while not self._stop.is_set():
                session.check_epoch(stint.checkpoint)
                source.wait(self.definition.poll.empty_backoff_seconds)
        self._revise(session, stint)
        if stint.checkpoint.paused_by is None:
            self._emit(Resumed(*self._names))
        return True

    def _revise(self, session: Session, stint: Stint) -> None:
        """A person has changed something: goes on from what there is now."""
        checkpoint = self._still_ours(session)
        stint.revise(checkpoint, self._lanes(session, checkpoint))

    def _lanes(self, session: Session, checkpoint: Checkpoint) -> Lanes:
        return Lanes(session.closed_lanes(checkpoint), session.resolved_ahead(checkpoint))

    def _drain(self, session: Session, stint: Stint, drainer: Drainer) -> None:
        """Tries the lanes that are due, between batches."""
        for lane in stint.lanes.due(self._wiring.clock.now())[:DRAIN_LANES]:
            if self._stop.is_set():
                return
            if self._alone_for:
                drainer.drain(lane, alone=lambda event: session.mark(stint.checkpoint, event))
            else:
                drainer.drain(lane)

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

    def _apply(
        self, session: Session, stint: Stint, applier: Applier, events: Sequence[RawEvent]
    ) -> None:
        clock = self._wiring.clock
        started, before = clock.monotonic(), stint.checkpoint
        try:
            for part in self._parts(events):
                if self._stop.is_set():
                    break
                if self._alone_for:
                    session.mark(stint.checkpoint, part[0])
                    self._alone_for -= 1
                applier.apply(part)
            self._suspect, self._strikes = None, 0
        finally:
            # What precedes an event that stops it is in.
            position, seconds = stint.checkpoint.position, clock.monotonic() - started
            if position != before.position:
                applied = stint.checkpoint.events_processed - before.events_processed
                self._emit(Committed(*self._names, position, applied, seconds))

    def _parts(self, events: Sequence[RawEvent]) -> list[Sequence[RawEvent]]:
        """Sets a suspect apart, so that what precedes it is committed before it is tried."""
        if self._alone_for:
            return [[event] for event in events[: self._alone_for]]
        if self._suspect is None:
            return [events]
        positions = [event.position for event in events]
        if self._suspect.position not in positions:
            return [events]
        at = positions.index(self._suspect.position)
        return [part for part in (events[:at], events[at : at + 1], events[at + 1 :]) if part]

    def _wait(self, source: Source, stint: Stint, *, is_busy: bool) -> None:
        poll = self.definition.poll
        seconds = poll.interval_seconds if is_busy else poll.empty_backoff_seconds
        due_at = stint.lanes.next_due()
        if due_at is not None:
            left = (due_at - self._wiring.clock.now()).total_seconds()
            seconds = max(0.0, min(seconds, left))
        if poll.wake:
            source.wait(seconds)
        else:
            self._stop.wait(seconds)

    def _is_arrived(self, stint: Stint) -> bool:
        if self._until is None or stint.checkpoint.position < self._until:
            return False
        return not stint.lanes.due(self._wiring.clock.now())

    # Failing

    def _note_progress(self, stint: Stint) -> None:
        """Failures with a commit between them are not in a row."""
        if self._checkpoint is not None and stint.checkpoint != self._checkpoint:
            self._failures = 0

    def _strike(self, failed: StoreFailedAt, stint: Stint) -> None:
        """The store failed inside a handler. Once is the store; again and again is the event."""
        self._note_progress(stint)
        known = self._suspect is not None and self._suspect.position == failed.event.position
        self._strikes = self._strikes + 1 if known else 1
        self._suspect = failed.event
        error = failed.error
        if (error.connection_lost and self._strikes >= STRIKES) or (
            isinstance(error, StoreConflict) and self._strikes >= CONFLICT_STRIKES
        ):
            # Its policy is asked as soon as the store can be reached.
            self._blamed[failed.event.position] = error
            self._strikes = 0
        raise error

    def _recovered(self) -> None:
        if self._failures:
            self._emit(PollRecovered(*self._names, self._failures))
            self._failures = 0

    def _back_off(self, error: StoreUnavailable) -> None:
        self._failures += 1
        poll = self.definition.poll
        if poll.max_consecutive_failures and self._failures >= poll.max_consecutive_failures:
            self._give_up(_fault(error, self._wiring.clock, self._suspect))
            return
        delay = poll.failure_backoff.delay(self._failures)
        text = self.definition.masked(str(error))
        self._emit(PollFailed(*self._names, self._failures, text, delay))
        self._stop.wait(delay)

    def _give_up(self, fault: Fault) -> None:
        """Ends the runner with a fault, written to the store if it can be reached."""
        if self._checkpoint is not None:
            # Not the runner's own session: its connection may be what has failed.
            with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
                session.record_fault(self._checkpoint, fault)
        self.fault = fault
        shown = replace(fault, error_message=self.definition.masked(fault.error_message))
        if self.definition.mask is not None:
            shown = replace(shown, error_stacktrace="(masked)", error=None)
        self._emit(Faulted(*self._names, shown))

    def _new_judge(self) -> Judge:
        return Judge(
            self.definition,
            feed=self._wiring.feed,
            types=self._wiring.types,
            caller=self._caller,
            clock=self._wiring.clock,
            emit=self._emit,
        )

    @property
    def _names(self) -> tuple[str, str]:
        return self.definition.name, self._wiring.feed

    def _emit(self, signal: Signal) -> None:
        self._wiring.signals.emit(signal)


def fault_message(projection: str, fault: Fault) -> str:
    """A fault in one sentence, with what to do next."""
    at = "" if fault.position is None else f" at position {fault.position}"
    what = "" if fault.event_type is None else f" on {fault.event_type!r} event {fault.event_id}"
    told = f"projection {projection!r} stopped{at}{what}: {fault.error_type}: {fault.error_message}"
    if fault.needs_reset:
        return f"{told} (mend the handler, then holdfast reset {projection})"
    before = "" if fault.position is None else "everything before it is committed; "
    return f"{told} ({before}mend the cause, then start it again)"


def _fault(error: BaseException, clock: Clock, event: RawEvent | None = None) -> Fault:
    stacktrace = format_error(error)
    return Fault(
        error_type=type(error).__name__,
        error_message=text_of(error),
        error_stacktrace=clean(stacktrace, MAX_STACKTRACE_CHARACTERS),
        at=clock.now(),
        position=event.position if event else None,
        event_id=event.id if event else None,
        event_type=event.type if event else None,
        needs_reset=isinstance(error, TransactionEnded),
        error=error,
    )
