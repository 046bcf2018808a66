"""A connection to PostgreSQL: named statements, rows in bulk, and what handlers get."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import TextBinaryLoader

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.row_type import Column, Key, TableSpec
from holdfast.runtime.store.transaction import RowChanges
from holdfast.sql.database import Row, transaction_ended
from holdfast.sql.postgres.array_packing import packed
from holdfast.sql.postgres.handler_tx import PostgresTx
from holdfast.sql.postgres.prefetch import Answer, Prefetch
from holdfast.sql.postgres.prepared import Prepared, are_packed
from holdfast.sql.postgres.row_statements import (
    arrays,
    deleting,
    finding_any,
    loading,
    named,
    writing,
    writing_with,
)
from holdfast.sql.queries import pyformat, query

if TYPE_CHECKING:
    from holdfast.sql.postgres.database import PostgresDatabase

INTRANS = TransactionStatus.INTRANS

SAVEPOINT = "SAVEPOINT holdfast_event"

CANCEL_SECONDS = 5.0
"""How long a request to cancel a statement may take."""


class PostgresConnection:
    """One psycopg connection in autocommit mode."""

    def __init__(
        self, database: PostgresDatabase, raw: psycopg.Connection[Row], *, is_lent: bool = False
    ) -> None:
        """`is_lent`: for a moment, so that it is not worth while to prepare statements."""
        self._database, self._raw, self._is_lent = database, raw, is_lent
        self._is_aborted = False
        # One for all our own statements: to make one costs as much as to use it.
        self._own_cursor = raw.cursor(binary=True)
        self._ahead = Prefetch()
        self._handled: PostgresTx | None = None
        self._made: dict[str, tuple[TableSpec, str]] = {}
        self._prepared: dict[str, Prepared] = {}
        self._succeeded: set[str] = set()

    @property
    def raw(self) -> psycopg.Connection[Row]:
        """The driver's connection, when it is free."""
        self.take_in()
        return self._raw

    @property
    def tx(self) -> PostgresTx:
        return PostgresTx(self.raw, self._succeeded)

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        with self._translated():
            return _rows(self._cursor().execute(pyformat(query(name, "postgres")), params or {}))

    def read(self, after: int, limit: int) -> Sequence[Row]:
        """On a connection that is not lent, outside of a transaction."""
        with self._translated():
            if self._is_lent:
                self.take_in()
                return self._events.execute(self._reading, _range(after, limit)).fetchall()
            return self._statement(self._reading, self._events).run(_range(after, limit))

    def ask(self, after: int, limit: int) -> None:
        """Has the server look for events whose `answer` will be wanted, and goes on."""
        if self._is_lent or self.raw.pgconn.transaction_status != TransactionStatus.IDLE:
            return
        with suppress(psycopg.Error):  # Whatever is run next fails in the same way.
            statement = self._statement(self._reading, self._events)
            self._ahead.ask(statement, _range(after, limit))

    def answer(self) -> Answer | None:
        """What was asked for last, once; None if nothing was."""
        with self._translated():
            return self._ahead.answer()

    def take_in(self) -> None:
        """Waits for what the server is at work on: the connection does one thing at a time."""
        with self._translated():
            self._ahead.take_in()

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
        sql, values = self._with_rows(name, table), named(table, changes)
        try:
            with self._translated():
                if are_packed(values):
                    found = self._statement(sql).run({**params, **values})
                else:
                    found = self._cursor().execute(sql, {**params, **values}).fetchall()
                return [row[:-1] for row in found]
        except psycopg.errors.DivisionByZero:
            return None  # By us, or by what people have made of the table: it is seen step by step.

    def script(self, sql: str) -> None:
        with self._translated():
            self.raw.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated(), self.raw.transaction():
            yield

    @contextmanager
    def handling(self, *, savepoint: bool) -> Iterator[PostgresTx]:
        # Lives as long as the transaction, so that another one in its place is noticed.
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
        # By our own cursor: a handler may have given the connection another kind of rows.
        if self.run_native("SELECT current_setting('holdfast.handling', true)", {}) != [(mark,)]:
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
        # Whoever waits for an answer finds that none comes. To close it would free what he uses.
        self._is_aborted = True
        with suppress(psycopg.Error, OSError):
            borrowed = socket.socket(fileno=self._raw.fileno())
            try:
                borrowed.shutdown(socket.SHUT_RDWR)
            finally:
                borrowed.detach()  # It stays the driver's.

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
            return self.raw.execute(writing(table), arrays(table, rows)).rowcount

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        with self._translated():
            self.raw.execute(deleting(table), [list(part) for part in zip(*keys, strict=True)])

    def _with_rows(self, name: str, table: TableSpec) -> str:
        """The statement, made once: a runner uses it for every batch."""
        made_for, sql = self._made.get(name, (None, ""))
        if made_for is not table:
            sql = writing_with(table, pyformat(query(name, "postgres")))
            self._made[name] = table, sql
        return sql

    def _cursor(self) -> psycopg.Cursor[Row]:
        self.take_in()
        return self._own_cursor

    def _statement(self, sql: str, context: psycopg.Cursor[Row] | None = None) -> Prepared:
        self.take_in()
        known = self._prepared.get(sql)
        if known is None:
            known = self._prepared[sql] = Prepared(self._raw, sql, context)
        return known

    @cached_property
    def _events(self) -> psycopg.Cursor[Row]:
        """One for events, whose JSON is kept as text."""
        cursor = self._raw.cursor(binary=True, row_factory=tuple_row)
        cursor.adapters.register_loader("json", TextBinaryLoader)
        return cursor

    @property
    def _reading(self) -> str:
        return pyformat(query("read", "postgres"))

    @property
    def is_lost(self) -> bool:
        return self._is_aborted or self._raw.closed

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._raw.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except psycopg.Error as error:
            if (unavailable := self._database.own_failure(error)) is None:
                raise
            raise unavailable from error


def _range(after: int, limit: int) -> dict[str, Any]:
    return {"after": after, "limit": limit}


def _rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """What a statement has returned; nothing, where it returns no rows."""
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []


def _typed(value: Any, column: Column) -> Any:
    """A JSON value as the row type declares it; its keys may be more than text."""
    return msgspec.convert(value, column.annotation, str_keys=True)
