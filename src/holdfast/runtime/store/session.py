"""A runner's own way to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from holdfast.errors import StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.lane import Lane
from holdfast.model.row_type import Key, TableSpec
from holdfast.model.sql_spec import SqlSpec
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import Fault
from holdfast.runtime.store.foreign_versions import ForeignVersions
from holdfast.runtime.store.queue_items import ParkedEvent
from holdfast.runtime.store.ranges import RangeStatements
from holdfast.runtime.store.transaction import RowChanges, Transaction


class Session(Protocol):
    """A runner's own way to the store, used by one thread."""

    def open_checkpoint(self, projection: str, feed: str) -> Checkpoint:
        """The checkpoint, made at position 0 if it is not there."""

    def prepare(self, definition: Definition) -> None:
        """Makes the projection's tables fit its definition, or raises SchemaError."""

    def take_over(
        self, checkpoint: Checkpoint, *, resumed: bool = False, ended_well: bool = False
    ) -> Checkpoint:
        """Raises the epoch, which fences every earlier runner, and marks it running.

        `resumed`: this runner was the last to lead it, and has only lost its connection.
        `ended_well`: the last leader can't have died of an event. What is not known to have ended
        well counts as a death. Raises ProjectionFaulted where only a reset makes the rows right.
        """

    def lead_on(self, checkpoint: Checkpoint) -> None:
        """This session takes the place of the one that its runner had before."""

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        """Raises Fenced if another runner has taken over, or the projection was reset.

        Raises Revised if a person has changed something.
        """

    def closed_lanes(self, checkpoint: Checkpoint) -> Mapping[str, Lane]: ...

    def resolved_ahead(self, checkpoint: Checkpoint) -> Set[int]:
        """Positions after the checkpoint, of a rewind, that a person has dealt with."""

    def lane_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> Sequence[ParkedEvent]:
        """What waits in a lane, in order."""

    @property
    def foreign_versions(self) -> ForeignVersions:
        """What is known of streams that other systems write."""

    def mark(self, checkpoint: Checkpoint, event: RawEvent, attempts: int) -> None:
        """Notes, durably, that this event is tried alone, in case the process dies of it.

        `attempts`: so many times, with this one, processes have tried it alone and died or not yet.
        """

    def note_wait(
        self, checkpoint: Checkpoint, until: datetime, reason: str, *, keep_mark: bool
    ) -> None:
        """Notes, durably, why nothing happens until then. `keep_mark`: nothing was tried."""

    def release(self, checkpoint: Checkpoint) -> None:
        """Marks the projection stopped, unless another runner has taken over."""

    def record_fault(self, checkpoint: Checkpoint, fault: Fault) -> None:
        """Marks the projection faulted, durably, unless another runner has taken over."""

    def range_statements(self, spec: SqlSpec) -> RangeStatements:
        """A SqlProjection's statements on this session."""

    def has_rows(self, table: TableSpec) -> bool:
        """Whether a table has any row at all."""

    def load_rows(
        self, table: TableSpec, keys: Sequence[Key]
    ) -> Mapping[Key, tuple[tuple[Any, ...], int]]:
        """The stored values and position of those rows that exist."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Commits at the end of the block; rolls back if it raises."""

    def advance(
        self, checkpoint: Checkpoint, to: Advance, rows: tuple[TableSpec, RowChanges] | None = None
    ) -> Checkpoint:
        """Writes rows and moves the checkpoint on, as a transaction of its own.

        The same as with `transaction`, and quicker where the database is far away.
        """

    def working(self) -> AbstractContextManager[None]:
        """Users' code runs in this block, and changes nothing in the store but by its `tx`."""

    def abort(self) -> None:
        """Ends the transaction that another thread is in, where that can be done."""

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        """The store's failure behind `error`, or None when the store is not to blame."""

    def interrupt(self) -> None:
        """Cancels the statement that runs, if any; may be called from another thread."""

    def refused(self, error: BaseException) -> bool:
        """Whether the store refused values, which come from events, rather than a statement."""

    def rest(self) -> None:
        """Lets go of what it holds open, which is opened again when it is needed."""

    def close(self) -> None: ...
