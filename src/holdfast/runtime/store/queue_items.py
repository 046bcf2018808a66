"""Items of the queue: events that wait, and why.

The life of an item in log delivery:

                 fails, Park               due, or requeued
    (the feed) ─────────────▶ dead │ failed ───────────────────▶ applied (the row is gone)
        │                        ▲    │ ▲
        │ its lane is closed     │    └─┘ fails again
        └──────────▶ pending ────┘ becomes the head, fails
        │ fails, Skip
        └──────────▶ skipped             any of them ──an operator──▶ resolved

In outbox delivery every event begins as pending, and is processing while a worker has claimed it as
the head of its lane, or retrying if it has failed before; the rest is the same. With
`keep_seconds`, an applied event stays as done for that time. Messages to other systems live like
events.

Only a lane's head is tried: the smallest position, or on feeds of other systems the smallest
version. Outstanding items (pending, processing, failed, dead) keep their lane closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from holdfast.errors import ConfigError
from holdfast.model import arguments
from holdfast.model.event import RawEvent
from holdfast.runtime.store.faults import stacktrace_of, text_of

Status = Literal[
    "pending", "processing", "retrying", "failed", "dead", "skipped", "resolved", "done"
]
"""`retrying` is for operators: the database has it as processing, with a failure before."""

STATUSES: tuple[Status, ...] = get_args(Status)

OUTSTANDING: tuple[Status, ...] = ("pending", "processing", "retrying", "failed", "dead")
"""The statuses that keep a lane closed."""

EARLY = "VersionGap"
"""The error type of an event that came before an earlier version of its stream."""

MAX_HISTORY = 10
"""Maximum number of attempts that are kept with an item; the last ones are."""


class Attempt(msgspec.Struct, frozen=True):
    """One failed attempt."""

    at: datetime
    error_type: str
    error_message: str
    error_stacktrace: str


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """The failures of an event; `last_attempts` has the last ones, oldest first."""

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
    """The record that the event was read from, if another system has written it."""

    @property
    def is_early(self) -> bool:
        """Whether it failed because it came before an earlier version of its stream."""
        attempts = self.history.last_attempts
        return bool(attempts) and attempts[-1].error_type == EARLY

    def is_due(self, now: datetime) -> bool:
        """Whether it may be tried, if it is the head."""
        if self.status == "failed":
            return self.next_attempt_at is None or self.next_attempt_at <= now
        return self.status == "pending"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The new state of an item whose attempt has failed."""

    id: int
    status: Status
    history: FailureHistory
    retries: int
    next_attempt_at: datetime | None


class QueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the queue, as operators see it. `data` and `metadata` are JSON text."""

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
    """The record that the event was read from, as JSON text, if another system has written it."""


class QueueSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The items that match every given field. `ids` alone names single items."""

    ids: tuple[int, ...] = ()
    projection: str | None = None
    lane: str | None = None
    version: int | None = None
    status: Status | None = None
    error_type: str | None = None
    event_type: str | None = None
    older_than_seconds: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ids, tuple | list):
            raise ConfigError(f"ids is {arguments.shown(self.ids)}; it is a tuple of numbers")
        for item_id in self.ids:
            arguments.whole("id", item_id)
        for name in ("projection", "lane", "error_type", "event_type"):
            arguments.text_or_none(name, getattr(self, name))
        arguments.whole_or_none("version", self.version)
        if self.older_than_seconds is not None:
            arguments.seconds("older_than_seconds", self.older_than_seconds)
        if self.status is not None and self.status not in STATUSES:
            raise ConfigError(
                f"status {arguments.shown(self.status)} is not one of {', '.join(STATUSES)}"
            )


class QueueCount(msgspec.Struct, frozen=True):
    """The number of items of one projection, status and error type, and the age of the oldest."""

    projection: str
    status: Status
    error_type: str | None
    items: int
    oldest_seconds: float


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command; with `dry_run`, what it would do."""

    action: str
    items: tuple[QueueItem, ...]
    left_alone: tuple[QueueItem, ...]
    """Items that were selected, but whose status does not allow the action."""
    dry_run: bool


class AuditRow(msgspec.Struct, frozen=True):
    """One change by an operator: who, what, when and why."""

    id: int
    at: datetime
    actor: str
    action: str
    projection: str | None
    subject: str
    note: str | None


def attempt_of(error: BaseException, at: datetime) -> Attempt:
    """An error as it is stored, within the limits of length."""
    return Attempt(
        at=at,
        error_type=type(error).__name__,
        error_message=text_of(error),
        error_stacktrace=stacktrace_of(error),
    )
