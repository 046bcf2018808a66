"""What waits in the queue, and why.

The life of an item in log delivery:

                 fails, Park               its turn, or requeued
    (the feed) ─────────────▶ dead │ failed ───────────────────▶ applied (the row is gone)
        │                        ▲    │ ▲
        │ its lane is closed     │    └─┘ fails again
        └──────────▶ pending ────┘ becomes the head, fails
        │ fails, Skip
        └──────────▶ skipped                any of them ──a person──▶ resolved

In outbox delivery every event begins as pending, and is processing while a worker has claimed it as
the head of its lane; otherwise its life is the same. What is applied stays as done for a while,
where it is kept; and messages for other systems live like events.

Only a lane's head is ever tried: its smallest position, or its smallest version where others write
the feed. Everything outstanding (pending, failed,
dead; in outbox delivery also processing) keeps its lane closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from holdfast.model.event import RawEvent
from holdfast.runtime.store.faults import (
    MAX_MESSAGE_CHARACTERS,
    MAX_STACKTRACE_CHARACTERS,
    clean,
    format_error,
    text_of,
)

Status = Literal["pending", "processing", "failed", "dead", "skipped", "resolved", "done"]

STATUSES: tuple[Status, ...] = get_args(Status)

OUTSTANDING: tuple[Status, ...] = ("pending", "processing", "failed", "dead")
"""What keeps a lane closed."""

EARLY = "VersionGap"
"""The error of an event that came before another one of its stream."""

MAX_HISTORY = 10
"""So many of an item's last attempts are kept."""


class Attempt(msgspec.Struct, frozen=True):
    """One failed attempt."""

    at: datetime
    error_type: str
    error_message: str
    error_stacktrace: str


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """What is known of an event's failures; `last_attempts` are the last ones, oldest first."""

    attempts: int = 0
    first_failed_at: datetime | None = None
    last_attempts: tuple[Attempt, ...] = ()

    def after(self, error: BaseException, at: datetime) -> FailureHistory:
        """The history with one more failed attempt."""
        return FailureHistory(
            self.attempts + 1,
            self.first_failed_at or at,
            (*self.last_attempts, attempt_of(error, at))[-MAX_HISTORY:],
        )


NO_FAILURE = FailureHistory()


@dataclass(frozen=True, slots=True)
class NewItem:
    """An event on its way into the queue."""

    event: RawEvent
    lane: str
    status: Status
    history: FailureHistory = NO_FAILURE
    next_attempt_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ParkedEvent:
    """An event that waits in a lane of the queue."""

    id: int
    status: Status
    next_attempt_at: datetime | None
    retries: int
    event: RawEvent
    history: FailureHistory
    kept: str | None = None
    """What the event was read from, where another system has written it."""

    @property
    def is_early(self) -> bool:
        """Whether it has failed because it came before another event of its stream."""
        attempts = self.history.last_attempts
        return bool(attempts) and attempts[-1].error_type == EARLY

    def is_due(self, now: datetime) -> bool:
        """Whether it may be tried, if it is the head."""
        if self.status == "failed":
            return self.next_attempt_at is None or self.next_attempt_at <= now
        return self.status == "pending"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What a failed attempt from the queue makes of an item."""

    id: int
    status: Status
    history: FailureHistory
    retries: int
    next_attempt_at: datetime | None


class QueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the queue, as people see it. `data` and `metadata` are JSON text."""

    id: int
    projection: str
    feed: str
    lane: str
    status: Status
    attempts: int
    retries: int
    next_attempt_at: datetime | None
    first_failed_at: datetime | None
    last_failed_at: datetime | None
    error_type: str | None
    error_message: str | None
    error_stacktrace: str | None
    history: tuple[Attempt, ...]
    resolved_by: str | None
    resolved_at: datetime | None
    note: str | None
    created_at: datetime
    updated_at: datetime
    position: int
    stream: str
    version: int
    event_id: UUID
    event_type: str
    data: str
    metadata: str
    recorded_at: datetime
    kept: str | None = None
    """What the event was read from, as JSON text, where others have written it."""


class QueueSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which items: those that fit every field that is given. `ids` alone names single items."""

    ids: tuple[int, ...] = ()
    projection: str | None = None
    lane: str | None = None
    version: int | None = None
    status: Status | None = None
    error_type: str | None = None
    event_type: str | None = None
    older_than_seconds: float | None = None


class QueueCount(msgspec.Struct, frozen=True):
    """So many items of one projection, status and error type, and the oldest one's age."""

    projection: str
    status: Status
    error_type: str | None
    items: int
    oldest_seconds: float


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a command has done, or with `dry_run` would do."""

    action: str
    items: tuple[QueueItem, ...]
    left_alone: tuple[QueueItem, ...]
    """Selected, but in a status that the action is not for."""
    dry_run: bool


class AuditRow(msgspec.Struct, frozen=True):
    """Who has changed what, when and why."""

    id: int
    at: datetime
    actor: str
    action: str
    projection: str | None
    subject: str
    note: str | None


def attempt_of(error: BaseException, at: datetime) -> Attempt:
    """An error as it is kept: bounded, and storable everywhere."""
    return Attempt(
        at=at,
        error_type=type(error).__name__,
        error_message=clean(text_of(error), MAX_MESSAGE_CHARACTERS),
        error_stacktrace=clean(format_error(error), MAX_STACKTRACE_CHARACTERS),
    )
