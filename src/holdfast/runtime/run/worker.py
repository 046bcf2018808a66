"""What runs one projection in this process, in whatever way it is delivered."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.errors import ProjectionFaulted
from holdfast.model.definition import Definition
from holdfast.model.event_types import EventTypes
from holdfast.runtime.signals import LANE_SIGNALS, Faulted, Signal, Signals
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.faults import Fault, fault_message, fault_of
from holdfast.runtime.store.leases import Leases
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source

STANDBY_SECONDS = 0.25
"""How often somebody who has no lease asks for it."""


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


class Worker(ABC):
    """Runs one projection until it is stopped, or faulted, or (with `until`) has arrived."""

    def __init__(self, definition: Definition, wiring: RunnerContext, until: int | None) -> None:
        self.definition = definition
        self.fault: Fault | None = None
        self.crashed = False
        self._wiring, self._until = wiring, until
        self._stop = threading.Event()
        self._arrived = False
        self.threads: list[threading.Thread] = []
        """Those that it has started by itself, and that may be running still."""

    def stop(self) -> None:
        """Asks it to finish what it has begun and end. The feed must be woken as well."""
        self._stop.set()

    @abstractmethod
    def run(self) -> None:
        """Blocks until it ends; afterwards `fault` says if something is wrong."""

    @abstractmethod
    def abandon(self) -> None:
        """Its handler does not return, and the process ends: that is nobody's death. May block."""

    def crash(self, error: BaseException) -> None:
        """A thread ends with an error that should not be: a fault, lest it pass unnoticed."""
        self.fault, self.crashed = fault_of(error, self._wiring.clock), True

    def raise_fault(self) -> None:
        """Raises ProjectionFaulted if it ended with a fault; its cause is the error."""
        if self.fault is not None:
            message = fault_message(self.definition.name, self.fault)
            raise ProjectionFaulted(message) from self.fault.error

    @property
    def has_stopped(self) -> bool:
        """Whether it was stopped, be it by an event."""
        return self._stop.is_set()

    @property
    def _goes_on(self) -> bool:
        return not (self._stop.is_set() or self._arrived or self.fault)

    @property
    def _names(self) -> tuple[str, str]:
        return self.definition.name, self._wiring.feed

    def _end_with(self, fault: Fault) -> None:
        """It has stopped: those who listen hear why, but for what is masked."""
        self.fault = fault
        shown = replace(fault, error_message=self.definition.masked(fault.error_message))
        if self.definition.mask is not None:
            shown = replace(shown, error_stacktrace="(masked)", error=None)
        self._emit(Faulted(*self._names, shown))

    def _emit(self, signal: Signal) -> None:
        if self.definition.mask is not None and isinstance(signal, LANE_SIGNALS):
            signal = replace(signal, lane="(masked)")  # A key may be taken from the payload.
        self._wiring.signals.emit(signal)
