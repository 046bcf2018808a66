"""A connection to PostgreSQL: named statements, rows in bulk, and what handlers get."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import TextBinaryLoader

from holdfast.errors import HoldfastError, SchemaError, StoreUnavailable
from holdfast.model.event import RawEvent
from holdfast.model.rows.row_type import Column, Key, TableSpec
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.source import Chunk
from holdfast.runtime.store.transaction import RowChanges
from holdfast.sql.database import Row, quote, transaction_ended
from holdfast.sql.postgres.array_packing import named_arrays, packed, row_arrays
from holdfast.sql.postgres.handler_tx import PostgresTx
from holdfast.sql.postgres.prefetch import Prefetch
from holdfast.sql.postgres.row_statements import (
    deleting,
    finding_any,
    loading,
    writing,
    writing_with,
)
from holdfast.sql.postgres.settled import next_settled, settled_rows
from holdfast.sql.queries import pyformat, query

if TYPE_CHECKING:
    from holdfast.sql.postgres.database import PostgresDatabase

INTRANS = TransactionStatus.INTRANS

SAVEPOINT = "SAVEPOINT holdfast_event"

CANCEL_SECONDS = 5.0
"""Timeout of a request to cancel a statement."""


class PostgresConnection:
    """One psycopg connection in autocommit mode."""

    def __init__(self, database: PostgresDatabase, raw: psycopg.Connection[Row]) -> None:
        self._database, self._raw = database, raw
        self._is_aborted = False
        # One cursor for all our own statements: to create one costs as much as to use it.
        self._own_cursor = raw.cursor(binary=True)
        # One cursor for events, whose JSON is kept as text.
        self._events = raw.cursor(binary=True, row_factory=tuple_row)
        self._events.adapters.register_loader("json", TextBinaryLoader)
        self._prefetch = Prefetch(raw, self._events)
        self._handled: PostgresTx | None = None
        self._made: dict[str, tuple[TableSpec, str]] = {}
        self._succeeded: set[str] = set()

    @property
    def raw(self) -> psycopg.Connection[Row]:
        """The driver's connection, when it is free."""
        self._receive_prefetched()
        return self._raw

    @property
    def tx(self) -> PostgresTx:
        return PostgresTx(self.raw, self._succeeded)

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        with self._translated():
            return _rows(self._cursor().execute(pyformat(query(name, "postgres")), params or {}))

    def read(self, after: int, limit: int) -> list[RawEvent]:
        return self.raw_events(self._read(after, limit))

    def settled(self, after: int, limit: int, *, ahead: bool = False) -> Chunk:
        rows, held = self._take_prefetched(after, limit) or self._read(after, limit), False
        if rows and rows[-1][0] != after + len(rows):  # There is a hole: see settled.py.
            reads = iter([rows])
            rows, held = settled_rows(
                after,
                read=lambda: next(reads, None) or self._read(after, limit),
                drawn=lambda: int(self.run("last_drawn")[0][0]),
                bound=lambda: self.run("lowest_open_append")[0][0],
            )
        if ahead and not held and 1 < limit == len(rows):
            self._read_ahead(rows[-1][0], limit)
        return Chunk(self.raw_events(rows), held)

    def forget_ahead(self) -> None:
        self._take_prefetched(0, 0)

    def settled_range(self, after: int, limit: int) -> EventRange:
        return next_settled(self, after, limit)

    def settled_end(self) -> int:
        drawn = int(self.run("last_drawn")[0][0])
        bound = self.run("lowest_open_append")[0][0]
        return drawn if bound is None else min(drawn, bound)

    def raw_events(self, rows: Iterable[Row]) -> list[RawEvent]:
        return [RawEvent(*row) for row in rows]

    def _read(self, after: int, limit: int) -> Sequence[Row]:
        self._receive_prefetched()
        with self._translated():
            params = {"after": after, "limit": limit}
            return self._events.execute(pyformat(query("read", "postgres")), params).fetchall()

    def _read_ahead(self, after: int, limit: int) -> None:
        """Has the server read the next events, outside of a transaction."""
        if self.raw.pgconn.transaction_status == TransactionStatus.IDLE:
            with suppress(psycopg.Error):  # The next statement fails in the same way.
                self._prefetch.send(after, limit)

    def run_native(self, sql: str, params: Mapping[str, Any]) -> list[Row]:
        with self._translated():
            return _rows(self._cursor().execute(sql, params))

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        with self._translated(), self.raw.cursor() as cursor:
            cursor.executemany(pyformat(query(name, "postgres")), params)

    def run_columns(
        self, name: str, params: Mapping[str, Any], columns: Mapping[str, Sequence[int | str]]
    ) -> int:
        arrays = {
            column: packed("int" if isinstance(values[0], int) else "str", values)
            for column, values in columns.items()
        }
        with self._translated():
            statement = pyformat(query(name, "postgres"))
            return self.raw.execute(statement, {**params, **arrays}).rowcount

    def run_at_once(
        self, name: str, params: Mapping[str, Any], rows: tuple[TableSpec, RowChanges] | None
    ) -> list[Row] | None:
        if rows is None:
            return self.run(name, params)
        table, changes = rows
        sql, values = self._with_rows(name, table), named_arrays(table, changes)
        try:
            with self._translated():
                found = self._cursor().execute(sql, {**params, **values}).fetchall()
                return [row[:-1] for row in found]
        except psycopg.errors.DivisionByZero:
            return None  # By our check, or by a trigger of the table: the separate statements tell.

    def script(self, sql: str) -> None:
        with self._translated():
            self.raw.execute(sql)

    def drop_table(self, name: str) -> None:
        try:
            self.script(f"DROP TABLE IF EXISTS {quote(name)}")
        except psycopg.errors.DependentObjectsStillExist as error:
            raise SchemaError(
                f"table {name!r} has to be dropped, because its definition has changed, and can't "
                f"be: {error.diag.message_detail}. Drop that, reset again, and make it again then"
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated(), self.raw.transaction():
            yield

    @contextmanager
    def handling(self, *, savepoint: bool) -> Iterator[PostgresTx]:
        # The setting ends with the transaction: another transaction in its place is noticed.
        mark = str(uuid4())
        then = f"; {SAVEPOINT}" if savepoint else ""
        with self._translated():
            self.raw.execute(f"SET LOCAL holdfast.handling = '{mark}'{then}", prepare=False)
        tx = self._handled = self.tx
        try:
            yield tx
            tx.flush()
            tx.forget_prepared()
        finally:
            tx.leave()
            self._handled = None
        self.check_intact()
        # On our own cursor: a handler may have changed the row factory of the connection.
        found = self.run_native("SELECT current_setting('holdfast.handling'::text, true)", {})
        if found != [(mark,)]:
            raise transaction_ended()

    def savepoint(self, *, renewed: bool) -> None:
        release = "RELEASE SAVEPOINT holdfast_event; " if renewed else ""
        with self._translated():
            try:
                self.raw.execute(release + SAVEPOINT, prepare=False)
            except psycopg.errors.InvalidSavepointSpecification:
                raise transaction_ended() from None

    def undo(self) -> None:
        with self._translated():
            if self._handled is not None:
                self._handled.leave()
            try:
                self.raw.execute("ROLLBACK TO SAVEPOINT holdfast_event")
            except (
                psycopg.errors.InvalidSavepointSpecification,
                psycopg.errors.NoActiveSqlTransaction,
            ):
                raise transaction_ended() from None
            if self._handled is not None:
                self._handled.forget_prepared()

    def interrupt(self) -> None:
        with suppress(psycopg.Error):
            self._raw.cancel_safe(timeout=CANCEL_SECONDS)

    def abort(self) -> None:
        # The thread that waits for an answer gets an error. To close the connection would free
        # memory that this thread uses.
        self._is_aborted = True
        with suppress(psycopg.Error, OSError):
            borrowed = socket.socket(fileno=self._raw.fileno())
            try:
                borrowed.shutdown(socket.SHUT_RDWR)
            finally:
                borrowed.detach()  # The socket stays the driver's.

    def check_intact(self) -> None:
        # COMMIT would answer ROLLBACK without an error if a statement has failed and the error
        # was swallowed, and do nothing at all if the transaction has been ended.
        status = self.raw.pgconn.transaction_status
        if status == INTRANS:
            return
        match status:
            case TransactionStatus.INERROR:
                raise HoldfastError(
                    "a statement failed inside the handler and its error was swallowed; PostgreSQL "
                    "can't go on in this transaction. Let the error pass, or use a savepoint"
                )
            case TransactionStatus.UNKNOWN:
                raise StoreUnavailable("the connection was lost", connection_lost=True)
            case _:
                raise transaction_ended()

    def has_rows(self, table: TableSpec) -> bool:
        return bool(self.run_native(finding_any(table), {})[0][0])

    def load_rows(self, table: TableSpec, keys: Sequence[Key]) -> dict[Key, tuple[Row, int]]:
        json_at = [i for i, column in enumerate(table.columns) if column.kind == "JSON"]
        found: dict[Key, tuple[Row, int]] = {}
        with self._translated():
            kinds = [table.columns[i].kind for i in table.key_indexes]
            columns = map(packed, kinds, zip(*keys, strict=True))
            for *stored, position in self._cursor().execute(loading(table), [*columns]).fetchall():
                for i in json_at:
                    if stored[i] is not None:
                        stored[i] = _typed(stored[i], table.columns[i])
                found[tuple(stored[i] for i in table.key_indexes)] = tuple(stored), position
        return found

    def write_rows(self, table: TableSpec, rows: RowChanges) -> int:
        with self._translated():
            return self.raw.execute(writing(table), row_arrays(table, rows)).rowcount

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        with self._translated():
            self.raw.execute(deleting(table), [list(part) for part in zip(*keys, strict=True)])

    def _with_rows(self, name: str, table: TableSpec) -> str:
        """The statement, built once: a runner uses it for every batch."""
        made_for, sql = self._made.get(name, (None, ""))
        if made_for is not table:
            sql = writing_with(table, pyformat(query(name, "postgres")))
            self._made[name] = table, sql
        return sql

    def _cursor(self) -> psycopg.Cursor[Row]:
        self._receive_prefetched()
        return self._own_cursor

    def _receive_prefetched(self) -> None:
        """Receives the answer of a prefetch: a connection does one thing at a time."""
        if self._prefetch.is_pending:
            with self._translated():
                self._prefetch.receive()

    def _take_prefetched(self, after: int, limit: int) -> Sequence[Row] | None:
        if not self._prefetch.is_pending:
            return None
        with self._translated():
            return self._prefetch.take(after, limit)

    @property
    def is_lost(self) -> bool:
        return self._is_aborted or self._raw.closed

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._raw.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """As `translating`, without a call more: every statement comes through here."""
        try:
            yield
        except HoldfastError:
            raise
        except psycopg.Error as error:
            if (ours := self._database.own_failure(error)) is None:
                raise
            raise ours from error


def _rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """The rows of a statement; none if it returns no rows."""
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []


def _typed(value: Any, column: Column) -> Any:
    """A JSON value as the row type declares it; its keys may be more than text."""
    return msgspec.convert(value, column.annotation, str_keys=True)
