"""The status of a projection, as operators see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from holdfast.model.definition import Mode


@dataclass(frozen=True, slots=True)
class LastError:
    """Why a projection stopped, or why it tries an event again.

    `at` is the last failure, `since` the first one of the same event. It has failed `attempts`
    times, of `max_attempts` where it is tried again; None is no limit. Without an event there are
    no attempts.
    """

    type: str
    message: str
    stacktrace: str
    at: datetime
    position: int | None
    event_id: UUID | None
    event_type: str | None
    since: datetime
    attempts: int
    max_attempts: int | None


def attempt_of(error: LastError) -> str:
    """The attempt in words: "attempt 3 of 8"; empty if no event was tried."""
    limit = "" if error.max_attempts is None else f" of {error.max_attempts}"
    return f"attempt {error.attempts}{limit}" if error.attempts else ""


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """One projection on one feed.

    `state` is `paused`, `faulted` after a stop at an error, `running` while a process holds the
    lease, else `stopped`; `leader` is the holder of the lease, in any state. `lag_events` counts
    the positions between the checkpoint and the head, so rolled back appends can make it a little
    too large. `lag_seconds` is the age of the oldest event that holdfast itself still has to
    apply, be it not reached yet, tried again, or due in the queue; an event that no handler takes
    is none. `stuck_events` wait for a person: dead ones and those behind them, the oldest since
    `stuck_seconds`; they are no lag. `waiting_until` and `waiting_for` say why it waits.
    `last_error` is why it has stopped (`is_faulted`, which a pause does not hide) or why it tries
    an event again, until there is progress. `queued_events` wait in `closed_lanes`. `needs_reset`:
    the rows don't match the checkpoint.

    On Kafka each partition is a feed, `position` is the next offset, and `lag_seconds` is the time
    since an event was last applied. If the brokers can't be asked, `is_head_known` is False, and
    `head` and `lag_events` mean nothing.

    With outbox `delivery`, which has a `mode`, an append puts every event into the queue. So
    `position` is the head, `lag_events` is the number of events in the queue that are not stuck,
    and there is no leader: it is `running` while a process delivers it.

    `overrides` are settings that operators have set in place of the code's.
    """

    projection: str
    feed: str
    state: Literal["running", "stopped", "faulted", "paused"]
    position: int
    head: int
    lag_events: int
    lag_seconds: float
    events_processed: int
    events_per_second: float
    epoch: int
    leader: str | None
    last_event_id: UUID | None
    last_event_type: str | None
    last_processed_at: datetime | None
    last_error: LastError | None
    is_faulted: bool = False
    needs_reset: bool = False
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_note: str | None = None
    waiting_until: datetime | None = None
    waiting_for: str | None = None
    stuck_events: int = 0
    stuck_seconds: float = 0.0
    closed_lanes: int = 0
    queued_events: int = 0
    delivery: Literal["log", "outbox"] = "log"
    mode: Mode | None = None
    is_head_known: bool = True
    overrides: Mapping[str, Any] = field(default_factory=dict)
