"""A runner's open transaction, written once for all databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from holdfast.errors import Fenced, HoldfastError
from holdfast.model.foreign_feed import DeadLetter
from holdfast.model.lane import Lane
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.queue_items import FailedAttempt, NewItem
from holdfast.runtime.store.transaction import HandlerTx, RowChanges
from holdfast.sql.database import Connection
from holdfast.sql.store.checkpoints import fenced, of
from holdfast.sql.store.lane_rows import open_lane, set_lanes, wake_lanes
from holdfast.sql.store.queue_rows import enqueue, fail_item
from holdfast.sql.values import as_json


class SqlTransaction:
    """A runner's open transaction."""

    def __init__(
        self,
        connection: Connection,
        advance: Callable[[Checkpoint, Advance], Checkpoint],
    ) -> None:
        self._connection, self._advance = connection, advance
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
        return self._advance(checkpoint, to)

    def enqueue(self, checkpoint: Checkpoint, items: Sequence[NewItem], at: datetime) -> set[int]:
        return enqueue(self._connection, checkpoint, items, at)

    def finish_items(self, ids: Sequence[int]) -> None:
        if ids:
            self._connection.run("finish_items", {"ids": as_json(ids)})

    def fail_item(self, failed: FailedAttempt, at: datetime) -> None:
        fail_item(self._connection, failed, at)

    def move_item(self, item_id: int, lane: str) -> None:
        self._connection.run("move_item", {"id": item_id, "lane": lane})

    def send(self, letter: DeadLetter) -> None:
        names = {
            "topic": letter.topic,
            "key": letter.key,
            "id": str(letter.id),
            "data": letter.data,
            "metadata": "{}",
            "at": letter.at,
            "once": False,
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
