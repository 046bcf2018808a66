"""What an operator sees of a projection."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID


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

    `state` is `running` while a process holds the lease, `faulted` when it stopped at an error,
    else `stopped`. `lag_events` counts positions between the checkpoint and the head, so rolled
    back appends can make it a little too large; it is 0 exactly when there is nothing to do.
    `lag_seconds` is the age of the oldest event that is not applied yet.
    """

    projection: str
    feed: str
    state: Literal["running", "stopped", "faulted"]
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
