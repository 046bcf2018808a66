"""A runner's open transaction, written once for all databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.errors import Fenced, HoldfastError, Revised
from holdfast.model.event import kept
from holdfast.model.foreign_feed import DeadLetter
from holdfast.model.lane import Lane
from holdfast.model.row_type import Key, TableSpec
from holdfast.model.sql_spec import JOURNAL_COLUMNS
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.queue_items import FailedAttempt, FailureHistory, NewItem
from holdfast.runtime.store.transaction import HandlerTx, RowChanges
from holdfast.sql.database import Connection, Database
from holdfast.sql.store.checkpoints import changed, fenced, of
from holdfast.sql.store.lane_rows import open_lane, set_lanes, wake_lanes
from holdfast.sql.values import as_json


class SqlTransaction:
    """A runner's open transaction."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database, self._connection = database, connection
        self.has_appended = False
        self._has_savepoint = False

    def lock_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        names = {"id": checkpoint.id, "epoch": checkpoint.epoch}
        rows = self._connection.run("lock_checkpoint", names)
        if not rows:
            raise fenced(checkpoint)
        return Checkpoint(*rows[0])

    @contextmanager
    def handling(self, *, savepoint: bool = False) -> Iterator[HandlerTx]:
        with self._connection.handling(savepoint=savepoint) as tx:
            self._has_savepoint = self._has_savepoint or savepoint
            yield tx
            self.has_appended = tx.has_appended

    def savepoint(self) -> None:
        self._connection.savepoint(renewed=self._has_savepoint)
        self._has_savepoint = True

    def undo(self) -> None:
        self._connection.undo()

    def check_intact(self) -> None:
        self._connection.check_intact()

    def write_rows(self, table: TableSpec, rows: RowChanges) -> None:
        written = self._connection.write_rows(table, rows)
        if written != len(rows):
            raise Fenced(
                f"{len(rows) - written} rows of table {table.name!r} were changed later: "
                "somebody else writes it"
            )

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        self._connection.delete_rows(table, keys)

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        rows = self._connection.run("advance", advanced(checkpoint, to))
        if not rows:
            raise changed(self._connection, checkpoint)
        return Checkpoint(*rows[0])

    def enqueue(self, checkpoint: Checkpoint, entries: Sequence[NewItem], at: datetime) -> set[int]:
        names = of(checkpoint)
        positions = [entry.event.position for entry in entries]
        stretch = {"first": min(positions), "last": max(positions)}
        rows = self._connection.run("queued_positions", names | stretch)
        known = {row[0] for row in rows}
        new = [entry for entry in entries if entry.event.position not in known]
        self._connection.run_many("enqueue", [names | _item(entry) | {"at": at} for entry in new])
        return {entry.event.position for entry in new}

    def finish_items(self, ids: Sequence[int]) -> None:
        if ids:
            self._connection.run("finish_items", {"ids": as_json(ids)})

    def fail_item(self, failed: FailedAttempt, at: datetime) -> None:
        names = {
            "id": failed.id,
            "status": failed.status,
            "retries": failed.retries,
            "next_attempt_at": failed.next_attempt_at,
            "at": at,
        }
        self._connection.run("fail_item", names | _errors(failed.history))

    def move_item(self, item_id: int, lane: str) -> None:
        self._connection.run("move_item", {"id": item_id, "lane": lane})

    def write_versions(self, checkpoint: Checkpoint, steps: Mapping[str, tuple[int, int]]) -> None:
        previous, versions = zip(*steps.values(), strict=True)
        columns = {"stream": list(steps), "previous": previous, "version": versions}
        if self._connection.run_columns("write_versions", of(checkpoint), columns) != len(steps):
            raise Revised(
                f"streams of projection {checkpoint.projection!r} have moved on by another feed"
            )

    def write_seen(self, checkpoint: Checkpoint, ids: Mapping[UUID, int], *, keep: int) -> None:
        # What came into the queue from elsewhere has no position here.
        items = [
            {"id": id_, "position": position if position > 0 else checkpoint.position}
            for id_, position in ids.items()
        ]
        self._connection.run("write_seen", {**of(checkpoint), "events": as_json(items)})
        until = checkpoint.position - keep
        if until > 0:
            self._connection.run("forget_seen", {**of(checkpoint), "until": until})

    def send(self, letter: DeadLetter) -> None:
        names = {
            "topic": letter.topic,
            "key": letter.key,
            "id": str(letter.id),
            "data": letter.data,
            "metadata": "{}",
            "at": letter.at,
        }
        if not self._connection.run("send", names):
            raise HoldfastError(f"nobody takes the messages of {letter.topic!r}; is it registered?")
        self.has_appended = True

    def write_lanes(self, checkpoint: Checkpoint, lanes: Mapping[str, Lane]) -> None:
        set_lanes(self._connection, of(checkpoint), lanes)

    def open_lane(self, checkpoint: Checkpoint, lane: str) -> None:
        open_lane(self._connection, of(checkpoint), lane)

    def wake_lanes(self, checkpoint: Checkpoint, stream: str, at: datetime) -> Sequence[str]:
        return wake_lanes(self._connection, of(checkpoint), stream, at)


def advanced(checkpoint: Checkpoint, to: Advance) -> dict[str, Any]:
    """A checkpoint's next value as the statement reads it."""
    return {
        "id": checkpoint.id,
        "epoch": checkpoint.epoch,
        "after": checkpoint.position,
        "revision": checkpoint.revision,
        "position": to.position,
        "events": to.events,
        "event_id": to.last_event_id,
        "event_type": to.last_event_type,
        "at": to.at,
        "events_per_second": to.events_per_second,
    }


def _item(entry: NewItem) -> dict[str, Any]:
    """An entry as the statement reads it."""
    return {
        **{name: getattr(entry.event, name) for name in JOURNAL_COLUMNS},
        "kept": kept(entry.event),
        "lane": entry.lane,
        "status": entry.status,
        "next_attempt_at": entry.next_attempt_at,
        **_errors(entry.history),
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
