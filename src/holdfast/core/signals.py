"""What the core says about itself. Logs, metrics and traces listen; the core never logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.ports import Fault


@dataclass(frozen=True, slots=True)
class Started:
    """A runner holds its lease and works."""

    projection: str
    feed: str
    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch is in: rows and checkpoint together."""

    projection: str
    feed: str
    position: int
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """A runner has ended its work and released its lease."""

    projection: str
    feed: str
    position: int


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A runner was fenced or lost its lease; it stands by for the next one."""

    projection: str
    feed: str
    reason: str


@dataclass(frozen=True, slots=True)
class PollFailed:
    """The store could not be used; the runner tries again after `retry_seconds`."""

    projection: str
    feed: str
    failures: int
    error: str
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Faulted:
    """A projection has stopped for good; somebody has to look at it."""

    projection: str
    feed: str
    fault: Fault


Signal = Started | Committed | Stopped | LeaseLost | PollFailed | Faulted
Listener = Callable[[Signal], None]


class Signals:
    """Passes signals on to listeners, on the thread that emits them."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> None:
        """Adds a listener. It must be quick, and must not raise."""
        self._listeners = (*self._listeners, listener)

    def emit(self, signal: Signal) -> None:
        for listener in self._listeners:
            listener(signal)


class Bell:
    """Wakes those who wait for news. No ring is missed between looking and waiting."""

    def __init__(self) -> None:
        self._rings = 0
        self._changed = threading.Condition()

    @property
    def rings(self) -> int:
        """How often it has rung; take this before you look for news."""
        return self._rings

    def ring(self) -> None:
        with self._changed:
            self._rings += 1
            self._changed.notify_all()

    def wait(self, heard: int, timeout_seconds: float) -> None:
        """Returns at the first ring after `heard`, or in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._rings != heard, timeout_seconds)
