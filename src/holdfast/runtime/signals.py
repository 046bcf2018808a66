"""Signals of the runtime. Logs, metrics and traces listen to them; the runtime never logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.runtime.store.faults import Fault


@dataclass(frozen=True, slots=True)
class _ProjectionSignal:
    """The fields of every signal."""

    projection: str
    feed: str


@dataclass(frozen=True, slots=True)
class Started(_ProjectionSignal):
    """A runner has got its lease, and works."""

    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Singled(_ProjectionSignal):
    """Processes have died here: up to `events` events are tried singly, to find the cause."""

    position: int
    unclean_ends: int
    events: int


@dataclass(frozen=True, slots=True)
class Committed(_ProjectionSignal):
    """A batch is committed, rows and checkpoint together; `events` of it were applied."""

    position: int
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stopped(_ProjectionSignal):
    """A runner has ended, and released its lease."""

    position: int


@dataclass(frozen=True, slots=True)
class LeaseLost(_ProjectionSignal):
    """A runner was fenced or lost its lease; it stands by for the next one."""

    reason: str


@dataclass(frozen=True, slots=True)
class BegunAgain(_ProjectionSignal):
    """An operator has reset or rewound the projection; the runner goes on from there."""


@dataclass(frozen=True, slots=True)
class PollFailed(_ProjectionSignal):
    """The store could not be used; the runner tries again after `retry_seconds`."""

    failures: int
    error: str
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Refused(_ProjectionSignal):
    """The store refused a batch; smaller ones are to show which event is to blame."""

    position: int
    error: str


@dataclass(frozen=True, slots=True)
class PollRecovered(_ProjectionSignal):
    """The store can be used again, after `failures` failures in a row."""

    failures: int


@dataclass(frozen=True, slots=True)
class Failed(_ProjectionSignal):
    """One attempt at an event failed, and the policy has decided.

    `decision` is fatal, skip, park, retry, or breaker if that is open. `max_attempts` is None
    without a limit. `delay_seconds` is the wait before the next attempt, None if there is none.
    """

    position: int
    event_id: str
    event_type: str
    stream: str
    lane: str
    attempt: int
    max_attempts: int | None
    decision: str
    delay_seconds: float | None
    error_type: str
    error: str
    stacktrace: str


@dataclass(frozen=True, slots=True)
class Waited(_ProjectionSignal):
    """The projection has stood still for a time, before a retry or because of the breaker."""

    seconds: float


@dataclass(frozen=True, slots=True)
class BreakerOpened(_ProjectionSignal):
    """Too many failures in a row: the projection pauses, then tries this event."""

    position: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Skipped(_ProjectionSignal):
    """An event was skipped, durably."""

    position: int
    event_type: str
    lane: str


@dataclass(frozen=True, slots=True)
class Parked(_ProjectionSignal):
    """A failed event is in the queue, and its lane is closed."""

    position: int
    event_type: str
    lane: str


@dataclass(frozen=True, slots=True)
class Queued(_ProjectionSignal):
    """`events` events have joined a closed lane."""

    lane: str
    events: int


@dataclass(frozen=True, slots=True)
class Duplicates(_ProjectionSignal):
    """`events` events were duplicates, and changed nothing."""

    events: int


@dataclass(frozen=True, slots=True)
class Died(_ProjectionSignal):
    """An event in the queue is dead: it is not tried again until an operator requeues it."""

    position: int
    event_type: str
    lane: str


@dataclass(frozen=True, slots=True)
class Drained(_ProjectionSignal):
    """`events` events of a closed lane were applied; `is_open`: none is left."""

    lane: str
    events: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class Recovered(_ProjectionSignal):
    """A failed event is applied, at attempt number `attempt`."""

    position: int
    attempt: int


@dataclass(frozen=True, slots=True)
class CallbackFailed(_ProjectionSignal):
    """A callback failed after the commit. The commit stands."""

    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class HookFailed(_ProjectionSignal):
    """`stopped()` of the projection failed. The worker has ended all the same."""

    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class Paused(_ProjectionSignal):
    """An operator has paused the projection; the runner holds its lease and waits."""

    by: str


@dataclass(frozen=True, slots=True)
class Resumed(_ProjectionSignal):
    """An operator has resumed the projection."""


@dataclass(frozen=True, slots=True)
class Changed(_ProjectionSignal):
    """Somebody has changed the projection from this process, as the audit says."""

    action: str
    by: str


@dataclass(frozen=True, slots=True)
class Faulted(_ProjectionSignal):
    """A projection has stopped at an error; it needs an operator."""

    fault: Fault


Signal = (
    Started
    | Committed
    | Stopped
    | LeaseLost
    | BegunAgain
    | Singled
    | PollFailed
    | PollRecovered
    | Refused
    | Failed
    | Waited
    | BreakerOpened
    | Skipped
    | Parked
    | Queued
    | Duplicates
    | Died
    | Drained
    | Recovered
    | CallbackFailed
    | HookFailed
    | Paused
    | Resumed
    | Changed
    | Faulted
)

LANE_SIGNALS = (Failed, Skipped, Parked, Queued, Died, Drained)
"""The signals that name a lane."""

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
