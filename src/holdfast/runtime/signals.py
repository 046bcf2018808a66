"""What the core says about itself. Logs, metrics and traces listen; the core never logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.runtime.store.faults import Fault


@dataclass(frozen=True, slots=True)
class Started:
    """A runner holds its lease and works."""

    projection: str
    feed: str
    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Singled:
    """Processes have died here: up to so many events are tried one at a time, to find the cause."""

    projection: str
    feed: str
    position: int
    unclean_ends: int
    events: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch is in, rows and checkpoint together; so many of its events were applied."""

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
class Refused:
    """What the events after a position have left can't be stored; they are read again, in smaller
    batches, until it shows which of them is to blame, if any is."""

    projection: str
    feed: str
    position: int
    error: str


@dataclass(frozen=True, slots=True)
class PollRecovered:
    """The store can be used again, after so many failures in a row."""

    projection: str
    feed: str
    failures: int


@dataclass(frozen=True, slots=True)
class Failed:
    """One attempt at an event failed."""

    projection: str
    feed: str
    position: int
    event_type: str
    lane: str
    attempt: int
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class Decided:
    """What follows from a failure: fatal, skip, park, retry, or breaker where it interferes."""

    projection: str
    feed: str
    position: int
    decision: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The event is tried again, as attempt number `attempt`, after `delay_seconds`."""

    projection: str
    feed: str
    position: int
    attempt: int
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """Too many failures in a row: the projection pauses, then tries this one event."""

    projection: str
    feed: str
    position: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """An event was passed without being applied, durably."""

    projection: str
    feed: str
    position: int
    event_type: str
    lane: str


@dataclass(frozen=True, slots=True)
class Parked:
    """An event that failed is in the queue, and its lane is closed."""

    projection: str
    feed: str
    position: int
    event_type: str
    lane: str


@dataclass(frozen=True, slots=True)
class Queued:
    """So many events wait behind others of their lane."""

    projection: str
    feed: str
    lane: str
    events: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """So many events had been here before, and changed nothing."""

    projection: str
    feed: str
    events: int


@dataclass(frozen=True, slots=True)
class Died:
    """An event in the queue is not tried again by itself: it needs a person."""

    projection: str
    feed: str
    position: int
    event_type: str
    lane: str


@dataclass(frozen=True, slots=True)
class Drained:
    """So many events that waited in a lane were applied; `is_open`: none is left."""

    projection: str
    feed: str
    lane: str
    events: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """An event that had failed is applied, at attempt number `attempt`."""

    projection: str
    feed: str
    position: int
    attempt: int


@dataclass(frozen=True, slots=True)
class CallbackFailed:
    """A callback that was called after the commit failed. The commit stands."""

    projection: str
    feed: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class Paused:
    """A person has paused the projection; it holds its lease and waits."""

    projection: str
    feed: str
    by: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """A person has let the projection go on."""

    projection: str
    feed: str


@dataclass(frozen=True, slots=True)
class Faulted:
    """A projection has stopped for good; somebody has to look at it."""

    projection: str
    feed: str
    fault: Fault


Signal = (
    Started
    | Committed
    | Stopped
    | LeaseLost
    | Singled
    | PollFailed
    | PollRecovered
    | Refused
    | Failed
    | Decided
    | Retrying
    | BreakerOpened
    | Skipped
    | Parked
    | Queued
    | Duplicates
    | Died
    | Drained
    | Recovered
    | CallbackFailed
    | Paused
    | Resumed
    | Faulted
)

LANE_SIGNALS = (Failed, Skipped, Parked, Queued, Died, Drained)
"""Those that name a lane."""

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
