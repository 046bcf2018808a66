"""A runner's session with the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from holdfast.errors import StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.lane import Lane
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.model.sql_spec import SqlSpec
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import Fault
from holdfast.runtime.store.foreign_versions import ForeignVersions
from holdfast.runtime.store.queue_items import ParkedEvent
from holdfast.runtime.store.ranges import RangeStatements
from holdfast.runtime.store.transaction import RowChanges, Transaction


class Session(Protocol):
    """A runner's session with the database, used by one thread."""

    def open_checkpoint(self, projection: str, feed: str) -> Checkpoint:
        """The checkpoint; a new one is at position 0."""

    def find_checkpoint(self, projection: str, feed: str) -> Checkpoint | None:
        """The checkpoint, if there is one."""

    def overrides(self, projection: str) -> Mapping[str, Any]:
        """The settings that operators have set in place of the code's."""

    def prepare(self, definition: Definition) -> None:
        """Creates or changes the projection's tables, or raises SchemaError."""

    def take_over(
        self, checkpoint: Checkpoint, *, resumed: bool = False, ended_well: bool = False
    ) -> Checkpoint:
        """Raises the epoch, which fences all earlier runners, and sets the state to running.

        `resumed`: this runner was the last leader, and has only lost its connection. `ended_well`:
        the last leader can't have died of an event. An end that is neither counts as a death.
        Raises ProjectionFaulted if only a reset makes the rows right.
        """

    def lead_on(self, checkpoint: Checkpoint) -> None:
        """Replaces the session that the runner had before."""

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        """Raises Fenced if another runner has taken over, or the projection was reset.

        Raises Revised if an operator has changed something.
        """

    def closed_lanes(self, checkpoint: Checkpoint) -> Mapping[str, Lane]: ...

    def resolved_ahead(self, checkpoint: Checkpoint) -> Set[int]:
        """Positions after the checkpoint, because of a rewind, that an operator has resolved."""

    def lane_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> Sequence[ParkedEvent]:
        """The items of a lane, in order."""

    @property
    def foreign_versions(self) -> ForeignVersions:
        """What is known of streams that other systems write."""

    def mark(self, checkpoint: Checkpoint, event: RawEvent, attempts: int) -> None:
        """Records durably that this event is tried alone, in case the process dies of it.

        `attempts`: the number of processes that have tried it alone, with this one.
        """

    def note_wait(
        self,
        checkpoint: Checkpoint,
        until: datetime,
        reason: str,
        *,
        keep_mark: bool,
        failure: Fault | None = None,
    ) -> None:
        """Records durably why the projection waits, and the failure that it waits after, if any.

        `keep_mark`: the marked event was not tried.
        """

    def release(self, checkpoint: Checkpoint) -> None:
        """Sets the state to stopped, unless another runner has taken over."""

    def record_fault(self, checkpoint: Checkpoint, fault: Fault) -> None:
        """Records the fault durably, unless another runner has taken over."""

    def range_statements(self, spec: SqlSpec) -> RangeStatements:
        """A SqlProjection's statements on this session."""

    def has_rows(self, table: TableSpec) -> bool:
        """Whether a table has a row."""

    def load_rows(
        self, table: TableSpec, keys: Sequence[Key]
    ) -> Mapping[Key, tuple[tuple[Any, ...], int]]:
        """The stored values and guard of the rows that exist."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Commits at the end of the block; rolls back if it raises."""

    def advance(
        self, checkpoint: Checkpoint, to: Advance, rows: tuple[TableSpec, RowChanges] | None = None
    ) -> Checkpoint:
        """Writes rows and advances the checkpoint, in a transaction of its own.

        It does the same as `transaction`, with fewer round trips.
        """

    def working(self) -> AbstractContextManager[None]:
        """The block in which users' code runs. It changes the database only by its `tx`."""

    def abort(self) -> None:
        """Ends the open transaction of another thread, if the database can."""

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        """The store's failure behind `error`, or None if the store is not to blame."""

    def interrupt(self) -> None:
        """Cancels the running statement, if any; may be called from another thread."""

    def refused(self, error: BaseException) -> bool:
        """Whether the store refused values, which come from events, and not a statement."""

    def rest(self) -> None:
        """Closes the connection; it is opened again when it is needed."""

    def close(self) -> None: ...
