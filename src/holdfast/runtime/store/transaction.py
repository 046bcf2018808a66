"""The open transaction of a runner, and the part of it that handlers get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from holdfast.model.foreign_feed import DeadLetter
from holdfast.model.lane import Lane
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.queue_items import FailedAttempt, NewItem


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows to write: their checked values, column by column in the table's order.

    `positions`: the guard of each row, by the last event that changed it.
    """

    columns: Sequence[Sequence[Any]]
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)


class HandlerTx(Protocol):
    """A driver's transaction for handlers; see model.projection.Tx."""

    has_appended: bool
    """Whether an append has joined it, so that readers must be woken."""

    @property
    def connection(self) -> Any: ...

    def execute(self, sql: str, params: Any = ()) -> int: ...

    def executemany(self, sql: str, params: Iterable[Any]) -> None: ...

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]: ...

    def write(self, sql: str, params: Any = ()) -> None: ...

    @property
    def is_behind(self) -> bool:
        """Whether a statement of `write` may not be done yet."""

    def flush(self) -> None:
        """Waits until all statements of `write` are done; raises their first error."""


class Transaction(Protocol):
    """One open transaction of a runner."""

    def lock_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """The present checkpoint, locked against operators until the transaction ends.

        Raises Fenced if another runner has taken over.
        """

    def handling(self, *, savepoint: bool = False) -> AbstractContextManager[HandlerTx]:
        """The block in which handlers run. Ending the transaction is prevented if the database can.

        `savepoint`: the block begins with one.
        """

    def savepoint(self) -> None:
        """Sets the point to which `undo` returns."""

    def undo(self) -> None:
        """Rolls back to the savepoint, which stays.

        Raises TransactionEnded or RolledBack if the savepoint is gone.
        """

    def check_intact(self) -> None:
        """Raises TransactionEnded if a handler may have committed the transaction.

        Raises RolledBack if the transaction was rolled back.
        """

    def write_rows(self, table: TableSpec, rows: RowChanges) -> None: ...

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None: ...

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Advances the checkpoint; raises Fenced unless epoch and position are unchanged.

        Raises Revised if an operator has changed something. Changes of the queue come after it, so
        that all transactions lock the checkpoint first.
        """

    def enqueue(self, checkpoint: Checkpoint, items: Sequence[NewItem], at: datetime) -> set[int]:
        """Adds items to the queue; returns the positions that were not in it before."""

    def finish_items(self, ids: Sequence[int]) -> None:
        """Takes applied items out of the queue."""

    def fail_item(self, failed: FailedAttempt, at: datetime) -> None:
        """Records that an item has failed again."""

    def move_item(self, item_id: int, lane: str) -> None:
        """Moves an item to another lane, where it waits in the order of the feed."""

    def send(self, letter: DeadLetter) -> None:
        """Sends a message to the sinks of its topic."""

    def write_lanes(self, checkpoint: Checkpoint, lanes: Mapping[str, Lane]) -> None: ...

    def open_lane(self, checkpoint: Checkpoint, lane: str) -> None: ...

    def wake_lanes(self, checkpoint: Checkpoint, stream: str, at: datetime) -> Sequence[str]:
        """Makes lanes due whose heads are events of the stream; returns their names."""
