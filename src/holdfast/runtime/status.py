"""What an operator sees of a projection."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from holdfast.model.definition import Mode


@dataclass(frozen=True, slots=True)
class LastError:
    """Why a projection stopped."""

    type: str
    message: str
    stacktrace: str
    at: datetime
    position: int | None
    event_id: UUID | None
    event_type: str | None


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """One projection on one feed.

    `state` is `paused` while it is, `faulted` when it stopped at an error, `running` while a
    process holds the lease, else `stopped`; `leader` says who holds it, in any state.
    `lag_events` counts positions between the checkpoint and the head, so rolled back appends can
    make it a little too large; it is 0 exactly when there is nothing to do.
    `lag_seconds` is the age of the oldest event that is not applied yet. `waiting_until` and
    `waiting_for` say why it rests just now; `queued_events` wait in `closed_lanes`. `needs_reset`:
    its rows are not what its checkpoint says.

    On Kafka each partition is a feed, and `position` is the next offset. There `lag_seconds` counts
    from when an event was last applied; where the brokers can't be asked, `is_head_known` is False,
    and `head` and `lag_events` say nothing.

    With outbox `delivery`, which has a `mode`, every event is in the queue when it is appended, so
    `position` is the head, `lag_events` is what waits in the queue, and nobody leads: it is
    `running` while some process delivers it.
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
    needs_reset: bool = False
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_note: str | None = None
    waiting_until: datetime | None = None
    waiting_for: str | None = None
    closed_lanes: int = 0
    queued_events: int = 0
    delivery: Literal["log", "outbox"] = "log"
    mode: Mode | None = None
    is_head_known: bool = True
