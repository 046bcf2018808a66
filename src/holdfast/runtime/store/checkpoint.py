"""How far a projection has come on a feed, and its next value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

State = Literal["running", "stopped", "faulted"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a projection has come on a feed, and who may move it on.

    `epoch` fences runners; `revision` counts what people have changed. `unclean_ends`: so many
    processes in a row have died here. `mark_position`: so many (`mark_attempts`) of them died at
    this event, which was alone. `asked_by`: the process to which its leader should leave it.
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


@dataclass(frozen=True, slots=True)
class Advance:
    """A checkpoint's next value, written in the transaction that writes the rows."""

    position: int
    events: int
    last_event_id: UUID | None
    last_event_type: str | None
    at: datetime
    events_per_second: float
