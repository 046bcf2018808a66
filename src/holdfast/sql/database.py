"""The one seam between logic and databases: what a driver module provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.errors import HoldfastError, StoreUnavailable, TransactionEnded
from holdfast.model.event import RawEvent
from holdfast.model.rows.row_type import Column, Key, TableSpec
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.source import Chunk
from holdfast.runtime.store.transaction import HandlerTx, RowChanges
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.range_dialect import RangeDialect

Row = tuple[Any, ...]
Run = Callable[[str, Mapping[str, Any]], list[Row]]
"""Runs a named statement."""

handled_database: ContextVar[object] = ContextVar("holdfast_handled_database", default=None)
"""The database for which users' code works just now; asyncio carries it along."""


def refuse_handlers(database: object, what: str) -> None:
    """Raises inside a handler: it would wait for its own transaction, or be done twice."""
    if handled_database.get() is database:
        raise HoldfastError(
            f"{what} can't be changed from inside a handler or a policy on the same database: its "
            "transaction may be undone and made again. Do it afterwards, with tx.after_commit"
        )


class Connection(Protocol):
    """One connection. Errors of an absent or unwilling database become StoreUnavailable."""

    @property
    def tx(self) -> HandlerTx:
        """What handlers get: the driver's own errors pass through it."""

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Runs a named statement and returns its rows."""

    def read(self, after: int, limit: int) -> list[RawEvent]:
        """The events after a position that are visible now, settled or not."""

    def settled(self, after: int, limit: int, *, ahead: bool = False) -> Chunk:
        """The events after a position, as far as nothing smaller can appear later.

        `ahead`: the next events will be wanted, so that a server can read them meanwhile.
        """

    def forget_ahead(self) -> None:
        """Drops events that were read ahead: they may have changed."""

    def settled_range(self, after: int, limit: int) -> EventRange:
        """The range of the next events, as far as nothing smaller can appear later."""

    def settled_end(self) -> int:
        """A position behind which nothing smaller can appear any more."""

    def raw_events(self, rows: Iterable[Row]) -> list[RawEvent]:
        """Rows with the journal's columns as events."""

    def run_native(self, sql: str, params: Mapping[str, Any]) -> list[Row]:
        """Runs one statement that is written for this database, with named parameters."""

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Runs a named statement once for each set of parameters."""

    def run_columns(
        self, name: str, params: Mapping[str, Any], columns: Mapping[str, Sequence[int | str]]
    ) -> int:
        """Runs a named statement for many rows, given by columns; returns how many it wrote."""

    def run_at_once(
        self, name: str, params: Mapping[str, Any], rows: tuple[TableSpec, RowChanges] | None
    ) -> list[Row] | None:
        """Runs a named statement, and writes rows if it returns any, as a transaction of its own.

        None if that can't be done in one go, or would leave some of the rows unwritten: then
        nothing is done.
        """

    def script(self, sql: str) -> None:
        """Runs one or more statements without parameters."""

    def drop_table(self, name: str) -> None:
        """Drops a table if it is there; raises SchemaError if others depend on it."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commits at the end of the block, rolls back if it raises."""

    def handling(self, *, savepoint: bool) -> AbstractContextManager[HandlerTx]:
        """Users' code runs in this block, inside a transaction that it must not end or spoil.

        `savepoint`: it begins with one.
        """

    def savepoint(self, *, renewed: bool) -> None:
        """Sets a savepoint; `renewed` puts it in the place of an earlier one."""

    def undo(self) -> None:
        """Back to the savepoint, which stays; TransactionEnded if it is gone."""

    def interrupt(self) -> None:
        """Cancels the statement that runs, if any; may be called from another thread."""

    def abort(self) -> None:
        """Ends the open transaction from another thread, where that can be done."""

    def check_intact(self) -> None:
        """Raises if the open transaction has failed, TransactionEnded if it is not open."""

    def has_rows(self, table: TableSpec) -> bool: ...

    def load_rows(self, table: TableSpec, keys: Sequence[Key]) -> dict[Key, tuple[Row, int]]: ...

    def write_rows(self, table: TableSpec, rows: RowChanges) -> int:
        """Writes rows unless the table has them at a later position; returns how many."""

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None: ...

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone for good."""

    def close(self) -> None: ...


class Database(Protocol):
    """A database: where connections, leases and wake-ups come from."""

    dialect: str
    """The folder of its queries and migrations."""

    table_options: str
    """What follows the columns where a row type's table is made."""

    range_dialect: RangeDialect
    """Its SQL for the statements of a SqlProjection."""

    wake: WakeSignal
    """Wakes waiting threads when the journal may have grown."""

    @property
    def exists(self) -> bool:
        """Whether there is something to connect to; a read must not make it."""

    def connect(self) -> Connection:
        """A connection of one's own: reads may run beside another connection's writes."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A shared connection for a quick read."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A shared connection in a transaction that may write."""

    def changing(self, lock_seconds: float) -> AbstractContextManager[Connection]:
        """As `writing`, for operators; raises StoreConflict after waiting that long for a lock."""

    def appending(self, lane: str) -> AbstractContextManager[Connection]:
        """A shared connection for one append, which is a single statement and so atomic.

        `lane`: the stream, or the key of a message. If it waits too long, an error names both.
        """

    def migrating(self) -> AbstractContextManager[Connection]:
        """A connection in a transaction that no other process's migration runs beside."""

    def plain(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Named parameters as the driver takes them."""

    def listen(self) -> None:
        """From now on the appends of other processes wake runners too."""

    def announce(self) -> None:
        """The journal has grown: wakes readers in all processes, at no cost to the append."""

    def lease(self, checkpoint: Checkpoint) -> Lease | None:
        """The lease of a projection, or None while another process has it."""

    def leased(self, checkpoint_ids: Iterable[int]) -> set[int]:
        """Which of these projections some process holds the lease of."""

    def depose(self, checkpoint_id: int) -> None:
        """Takes the lease away from the process that holds it."""

    def cut_off(self, checkpoint_id: int) -> None:
        """Ends the transaction that the last leader is in, where that can be done."""

    def check_joinable(self, run: Run) -> None:
        """Raises AppendError if a caller's connection is on another database than the journal."""

    def column_ddl(self, column: Column, *, with_default: bool) -> str:
        """A column's definition for CREATE TABLE, or with its default for ADD COLUMN."""

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        """The database's own failure behind an error, or None."""

    def refused(self, error: BaseException) -> bool:
        """Whether the error is about the values that were to be stored, such as a constraint's."""

    def close(self) -> None: ...


def quote(name: str) -> str:
    """An identifier, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def transaction_ended() -> TransactionEnded:
    """The same words on every database."""
    return TransactionEnded(
        "the handler ended the transaction itself, so some of its rows may be in without the "
        "checkpoint; leave COMMIT and ROLLBACK out of it, then reset the projection"
    )


@contextmanager
def translating(
    kind: type[Exception], translate: Callable[[Any], HoldfastError | None]
) -> Iterator[None]:
    """Raises our error for a driver's; an error that has no translation passes."""
    try:
        yield
    except HoldfastError:
        raise
    except kind as error:
        if (ours := translate(error)) is None:
            raise
        raise ours from error


def causes(error: BaseException | None) -> Iterable[BaseException]:
    """The error and what it came from, through wrappers such as SQLAlchemy's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "orig", None) or error.__cause__
