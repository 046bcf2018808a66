"""One open transaction of a runner, and what handlers see of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from holdfast.model.foreign_feed import DeadLetter
from holdfast.model.lane import Lane
from holdfast.model.row_type import Key, TableSpec
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.queue_items import FailedAttempt, NewItem


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows to write: their values, checked, column by column in the table's order.

    `positions`: which event has changed each of them last, by what orders events.
    """

    columns: Sequence[Sequence[Any]]
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)


class HandlerTx(Protocol):
    """A driver's transaction for handlers; see model.projection.Tx."""

    has_appended: bool
    """Whether an append has joined it, so that readers have to be woken."""

    @property
    def connection(self) -> Any: ...

    def execute(self, sql: str, params: Any = ()) -> int: ...

    def executemany(self, sql: str, params: Iterable[Any]) -> None: ...

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]: ...

    def write(self, sql: str, params: Any = ()) -> None: ...

    @property
    def is_behind(self) -> bool:
        """Whether a written statement may not be done yet."""

    def flush(self) -> None:
        """Waits until all written statements are done; raises the first error of them."""


class Transaction(Protocol):
    """One open transaction of a runner."""

    def lock_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint as it is now, which no person changes before the transaction ends.

        Raises Fenced if another runner has taken over.
        """

    def handling(self, *, savepoint: bool = False) -> AbstractContextManager[HandlerTx]:
        """Handlers run in this block, and can't end the transaction where that can be prevented.

        `savepoint`: it begins with one.
        """

    def savepoint(self) -> None:
        """From now on `undo` comes back to here."""

    def undo(self) -> None:
        """Takes back what has happened since the savepoint, which stays.

        Raises TransactionEnded or RolledBack where there is nothing left to come back to.
        """

    def check_intact(self) -> None:
        """Raises if a handler has spoilt the transaction.

        TransactionEnded if it may have committed it, RolledBack if it has only undone it.
        """

    def write_rows(self, table: TableSpec, rows: RowChanges) -> None: ...

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None: ...

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Moves the checkpoint on; raises Fenced unless epoch and position are as we left them.

        Raises Revised if a person has changed something. What concerns the queue comes after it,
        so that everybody locks the checkpoint first.
        """

    def enqueue(self, checkpoint: Checkpoint, entries: Sequence[NewItem], at: datetime) -> set[int]:
        """Adds entries to the queue; returns the positions that were not in it before."""

    def finish_items(self, ids: Sequence[int]) -> None:
        """Takes applied items out of the queue."""

    def fail_item(self, failed: FailedAttempt, at: datetime) -> None:
        """Notes that an item has failed again."""

    def move_item(self, item_id: int, lane: str) -> None:
        """Puts an item into another lane, where it waits in the order of the feed."""

    def send(self, letter: DeadLetter) -> None:
        """Sends a message to those who take its topic."""

    def write_lanes(self, checkpoint: Checkpoint, lanes: Mapping[str, Lane]) -> None: ...

    def open_lane(self, checkpoint: Checkpoint, lane: str) -> None: ...

    def wake_lanes(self, checkpoint: Checkpoint, stream: str, at: datetime) -> Sequence[str]:
        """Has lanes looked at whose heads are events of the stream; returns their names."""
