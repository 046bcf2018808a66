"""What runs one projection in this process, in whatever way it is delivered."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.errors import HoldfastError, ProjectionFaulted, StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.failure import is_transient
from holdfast.model.tuning import Overrides
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Attempts
from holdfast.runtime.failure.recovery import PolicyState, Recovery
from holdfast.runtime.limits import LIMITS, RuntimeLimits
from holdfast.runtime.run.hooks import Hooks
from holdfast.runtime.signals import (
    LANE_SIGNALS,
    Failed,
    Faulted,
    HookFailed,
    PollFailed,
    PollRecovered,
    Signal,
    Signals,
)
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.faults import (
    MAX_MESSAGE_CHARACTERS,
    Fault,
    fault_message,
    fault_of,
    text_of,
)
from holdfast.runtime.store.leases import Leases
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source
from holdfast.runtime.wake import StopSignal, WakeSignal
from holdfast.texts import clean


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What a worker is connected to."""

    feed: str
    open_session: Callable[[], Session]
    open_source: Callable[[Session], Source]
    leases: Leases
    types: EventTypes
    clock: Clock
    signals: Signals
    wake: WakeSignal
    hooks: Hooks
    limits: RuntimeLimits = LIMITS


class Worker(ABC):
    """Runs one projection until it is stopped, or faulted, or (with `until`) has arrived."""

    def __init__(self, definition: Definition, context: RunnerContext, until: int | None) -> None:
        self.definition = definition
        self._own_fault: Fault | None = None
        self.crashed = False
        self._to_record: Fault | None = None
        self._fault_is_recorded = True
        self._stopped_at: Checkpoint | None = None
        """The checkpoint at which a fault has stopped it."""
        self._context, self._limits, self._until = context, context.limits, until
        self._stop = StopSignal()
        self._arrived = False
        self._failing = threading.Lock()
        self._failures, self._failing_since = 0, context.clock.now()
        self._back_at = 0.0
        self._has_given_up = False
        self._overrides: Overrides = {}
        self._emit = context.signals.emit if definition.mask is None else self._emit_masked

    @abstractmethod
    def run(self) -> None:
        """Blocks until it ends; afterwards `fault` says if something is wrong."""

    def stop(self) -> None:
        """Asks it to finish what it has begun and end. The feed must be woken as well."""
        self._stop.set()

    def abandon(self) -> None:
        """The process ends though a handler has not returned: no event is to blame. May block."""
        return

    @property
    def name(self) -> str:
        """Its name among the threads of the process."""
        return self.definition.name

    def runs_this_thread(self) -> bool:
        """Whether the calling code runs in a thread that the worker has started by itself."""
        return False

    @property
    def has_left_threads(self) -> bool:
        """Whether threads of its own still run, such as a client that can't leave its group."""
        return False

    @property
    def fault(self) -> Fault | None:
        """Why it has stopped, or the first of its parts."""
        if self._own_fault is not None:
            return self._own_fault
        return next((part.fault for part in self._parts() if part.fault is not None), None)

    @property
    def is_stuck(self) -> bool:
        """Whether nothing of it goes on before an operator does something."""
        parts = self._parts()
        return self._own_fault is not None or (bool(parts) and all(p.is_stuck for p in parts))

    def _parts(self) -> Sequence[Worker]:
        """The workers that it has for parts of the feed."""
        return ()

    def await_operator(self, is_dismissed: Callable[[float], bool]) -> bool:
        """Waits until there is a reason to try again; False if it is dismissed before.

        Reasons are an operator's change, and progress of another process. A fault that could not
        be recorded, because the store was away, is recorded meanwhile. `is_dismissed` waits for
        some seconds.
        """
        while not is_dismissed(self._limits.fault_check_seconds):
            # The store may be away, or the projection may have other shards by now.
            with suppress(HoldfastError), closing(self._context.open_session()) as session:
                if not self._fault_is_recorded:
                    self._record_fault(session)
                now = self._watched_checkpoint(session)
                if now is not None and self._stopped_at is None:
                    self._stopped_at = now
                elif _has_changed(self._stopped_at, now):
                    return True
        return False

    def crash(self, error: BaseException) -> None:
        """Notes a fault: its thread ends with an unexpected error."""
        self._own_fault, self.crashed = fault_of(error, self._context.clock), True

    def raise_fault(self) -> None:
        """Raises ProjectionFaulted if it ended with a fault; its cause is the error."""
        if self.fault is not None:
            message = fault_message(self.definition.name, self.fault)
            raise ProjectionFaulted(message) from self.fault.error

    def use(self) -> None:
        """Calls `started()` of the projection, unless that was done in this process.

        Where that fails for a reason that passes, it is as if the store were away.
        """
        try:
            self._context.hooks.use(self)
        except Exception as error:
            if not is_transient(error):
                raise
            text = f"{type(error).__name__}: {text_of(error)}"
            raise StoreUnavailable(f"started() of the projection failed: {text}") from error

    def leave(self) -> None:
        """Calls `stopped()` of the projection, unless other workers of this process use it."""
        try:
            self._context.hooks.leave(self)
        except Exception as error:
            text = self.definition.masked(text_of(error))
            self._emit(HookFailed(*self._names, type(error).__name__, text))

    @property
    def has_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def _goes_on(self) -> bool:
        return not (self._stop.is_set() or self._arrived or self.fault)

    @property
    def _names(self) -> tuple[str, str]:
        return self.definition.name, self._context.feed

    def _new_attempts(self, invoker: Invoker, state: PolicyState | None = None) -> Attempts:
        """Attempts at events that nothing is known of yet."""
        definition, context = self.definition, self._context
        recovery = Recovery(
            definition,
            feed=context.feed,
            types=context.types,
            invoker=invoker,
            clock=context.clock,
            emit=self._emit,
            state=state,
        )
        return Attempts(
            definition,
            names=self._names,
            types=context.types,
            recovery=recovery,
            clock=context.clock,
            emit=self._emit,
        )

    def _tune(self, session: Session) -> bool:
        """Takes up the settings that operators have set; returns whether they differ."""
        overrides = session.overrides(self.definition.name)
        self.definition.tuning.apply(overrides)
        is_new, self._overrides = overrides != self._overrides, overrides
        return is_new

    # While the store is away

    def _back_off(self, error: StoreUnavailable, *, suspect: RawEvent | None = None) -> None:
        """Waits as the projection's Poll says; gives up after too many failures in a row.

        What several threads meet at the same time is one failure.
        """
        poll, now = self.definition.poll, self._context.clock.monotonic()
        with self._failing:
            if now >= self._back_at and not self._has_given_up:
                self._failures += 1
                if self._failures == 1:
                    self._failing_since = self._context.clock.now()
                limit = poll.max_consecutive_failures
                if limit and self._failures >= limit:
                    self._give_up(fault_of(error, self._context.clock, suspect))
                    return
                delay = poll.failure_backoff.delay(self._failures)
                text = self.definition.masked(text_of(error))
                self._emit(PollFailed(*self._names, self._failures, text, delay))
                if not error.connection_lost:
                    self._note_failing(error, delay)
                self._back_at = now + delay
        self._stop.wait(max(0.0, self._back_at - now))

    def _recovered(self) -> None:
        """The store can be used again."""
        if self._failures:
            with self._failing:
                failures, self._failures = self._failures, 0
            self._emit(PollRecovered(*self._names, failures))

    def _note_failing(self, error: StoreUnavailable, delay_seconds: float) -> None:
        """Notes for operators why nothing happens, if the store takes that."""
        until = self._context.clock.now() + timedelta(seconds=delay_seconds)
        reason = (
            f"what it needs, which has failed {self._failures} times in a row since "
            f"{self._failing_since:%Y-%m-%d %H:%M:%S %Z}: {error}"
        )
        reason = clean(reason, MAX_MESSAGE_CHARACTERS)
        with suppress(HoldfastError), closing(self._context.open_session()) as session:
            checkpoint = self._noted_checkpoint(session)
            if checkpoint is not None:
                session.note_wait(checkpoint, until, reason, keep_mark=True)

    # Ending

    def _give_up(self, fault: Fault) -> None:
        """Ends with a fault, written to the store if that can be reached."""
        self._has_given_up = True
        self._to_record, self._fault_is_recorded = fault, False
        # Not on a session that is in use: its connection may be what has failed.
        with suppress(HoldfastError), closing(self._context.open_session()) as session:
            self._record_fault(session)
        self._end_with(fault)

    def _record_fault(self, session: Session) -> None:
        checkpoint = self._noted_checkpoint(session)
        if checkpoint is not None and self._to_record is not None:
            session.record_fault(checkpoint, self._to_record)
        self._stopped_at = self._stopped_at or self._watched_checkpoint(session)
        self._fault_is_recorded = True

    def _end_unrecorded(self, fault: Fault) -> None:
        """Ends with a fault that the store knows already, and better, or that is not of events."""
        with suppress(HoldfastError), closing(self._context.open_session()) as session:
            self._stopped_at = self._stopped_at or self._watched_checkpoint(session)
        self._end_with(fault)

    def _watched_checkpoint(self, session: Session) -> Checkpoint | None:
        """The checkpoint that an operator changes to let it go on."""
        return session.find_checkpoint(*self._names)

    def _noted_checkpoint(self, session: Session) -> Checkpoint | None:
        """The checkpoint that faults and waits are noted at."""
        return session.open_checkpoint(*self._names)

    def _end_with(self, fault: Fault) -> None:
        """Ends with a fault, and tells listeners why, except for what is masked."""
        self._own_fault = fault
        shown = replace(fault, error_message=self.definition.masked(fault.error_message))
        if self.definition.mask is not None:
            shown = replace(shown, error_stacktrace="(masked)", error=None)
        self._emit(Faulted(*self._names, shown))

    def _emit_masked(self, signal: Signal) -> None:
        if isinstance(signal, LANE_SIGNALS):
            signal = replace(signal, lane="(masked)")  # A key may be taken from the payload.
        if isinstance(signal, Failed):
            signal = replace(signal, stream="(masked)")  # It is the lane, where no other is named.
        self._context.signals.emit(signal)


def _has_changed(before: Checkpoint | None, now: Checkpoint | None) -> bool:
    """Whether an operator has changed something, or another process has gone on."""
    if before is None or now is None:
        return before is not now
    return (now.revision, now.position) != (before.revision, before.position)
