"""A projection's checkpoint on a feed, and its next value."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

State = Literal["running", "stopped", "faulted"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a projection has come on a feed, and which runner may advance it.

    `epoch` fences runners; `revision` counts the changes of operators. `unclean_ends`: the number
    of processes in a row that died here. `mark_position`: the event that was being tried alone,
    `mark_attempts` times. `asked_by`: the process to which the leader should leave the shard.
    `is_waiting`: its event is to be tried again later, and no operator has ended the wait.
    """

    id: int
    projection: str
    feed: str
    position: int
    epoch: int
    state: State
    events_processed: int
    revision: int
    leader: str | None = None
    paused_by: str | None = None
    unclean_ends: int = 0
    mark_position: int | None = None
    mark_attempts: int = 0
    asked_by: str | None = None
    is_waiting: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Advance:
    """A checkpoint's next value, written in the transaction that writes the rows."""

    position: int
    events: int
    last_event_id: str | None
    last_event_type: str | None
    at: datetime
    events_per_second: float
