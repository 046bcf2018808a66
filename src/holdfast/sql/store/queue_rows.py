"""The items of the queue, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model.event import kept
from holdfast.model.sql_spec import JOURNAL_COLUMNS
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import (
    Attempt,
    FailedAttempt,
    FailureHistory,
    NewItem,
    ParkedEvent,
)
from holdfast.sql.database import Connection, Row
from holdfast.sql.store.checkpoints import of
from holdfast.sql.values import as_json, moment


def enqueue(
    connection: Connection, checkpoint: Checkpoint, items: Sequence[NewItem], at: datetime
) -> set[int]:
    """Adds items to the queue; returns the positions that were not in it before."""
    names = of(checkpoint)
    positions = [item.event.position for item in items]
    bounds = {"first": min(positions), "last": max(positions)}
    rows = connection.run("queued_positions", names | bounds)
    known = {row[0] for row in rows}
    new = [item for item in items if item.event.position not in known]
    connection.run_many("enqueue", [names | _item(item) | {"at": at} for item in new])
    return {item.event.position for item in new}


def fail_item(connection: Connection, failed: FailedAttempt, at: datetime) -> None:
    """Writes that an item has failed again."""
    names = {
        "id": failed.id,
        "status": failed.status,
        "retries": failed.retries,
        "next_attempt_at": failed.next_attempt_at,
        "at": at,
    }
    connection.run("fail_item", names | _errors(failed.history))


def parked_event(connection: Connection, row: Row) -> ParkedEvent:
    """An item of the queue that waits in a lane."""
    id_, status, next_attempt_at, retries, attempts, first_failed_at, history, *event, kept = row
    (raw,) = connection.raw_events([tuple(event)])
    failures = FailureHistory(
        attempts, moment(first_failed_at), msgspec.json.decode(history, type=tuple[Attempt, ...])
    )
    return ParkedEvent(id_, status, moment(next_attempt_at), retries, raw, failures, kept)


def _item(item: NewItem) -> dict[str, Any]:
    """An item as the statement reads it."""
    return {
        **{name: getattr(item.event, name) for name in JOURNAL_COLUMNS},
        "kept": kept(item.event),
        "lane": item.lane,
        "status": item.status,
        "next_attempt_at": item.next_attempt_at,
        **_errors(item.history),
    }


def _errors(history: FailureHistory) -> dict[str, Any]:
    last = history.last_attempts[-1] if history.last_attempts else None
    return {
        "attempts": history.attempts,
        "first_failed_at": history.first_failed_at,
        "last_failed_at": last.at if last else None,
        "error_type": last.error_type if last else None,
        "error_message": last.error_message if last else None,
        "error_stacktrace": last.error_stacktrace if last else None,
        "history": as_json(history.last_attempts),
    }
