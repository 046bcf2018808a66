"""A connection to PostgreSQL: named statements, rows in bulk, and what handlers get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.ports import RowChanges
from holdfast.core.table import Column, Key, TableSpec
from holdfast.sql.database import Row, quote, transaction_ended
from holdfast.sql.postgres_arrays import packed
from holdfast.sql.postgres_tx import PostgresTx
from holdfast.sql.postgres_types import TYPES
from holdfast.sql.queries import pyformat, query

if TYPE_CHECKING:
    from holdfast.sql.postgres import PostgresDatabase

INTRANS = TransactionStatus.INTRANS

CANCEL_SECONDS = 5.0
"""How long a request to cancel a statement may take."""


class PostgresConnection:
    """One psycopg connection in autocommit mode."""

    def __init__(self, database: PostgresDatabase, raw: psycopg.Connection[Row]) -> None:
        self._database, self.raw = database, raw
        self._handled: PostgresTx | None = None

    @property
    def tx(self) -> PostgresTx:
        return PostgresTx(self.raw)

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        with self._translated():
            cursor = self.raw.execute(
                pyformat(query(name, "postgres")),
                params or {},
                binary=True,
            )
            return _rows(cursor)

    def run_native(self, sql: str, params: Mapping[str, Any]) -> list[Row]:
        with self._translated():
            cursor = self.raw.execute(sql, params, binary=True)
            return _rows(cursor)

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

    def script(self, sql: str) -> None:
        with self._translated():
            self.raw.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated(), self.raw.transaction():
            yield

    @contextmanager
    def handling(self) -> Iterator[PostgresTx]:
        # Lives as long as the transaction, so that another one in its place is noticed.
        mark = str(uuid4())
        with self._translated():
            self.raw.execute("SELECT set_config('holdfast.handling', %s, true)", (mark,))
        tx = self._handled = self.tx
        try:
            yield tx
            tx.flush()
            tx.renew()
        finally:
            tx.leave()
            self._handled = None
        self.check_intact()
        with self._translated():
            row = self.raw.execute("SELECT current_setting('holdfast.handling', true)").fetchone()
        if row != (mark,):
            raise transaction_ended()

    def savepoint(self, *, renewed: bool) -> None:
        if renewed and self._handled is not None and self._handled.is_behind:
            # As little waited for as what handlers have written. If it fails, so does that.
            self._handled.write("RELEASE SAVEPOINT holdfast_event")
            self._handled.write("SAVEPOINT holdfast_event")
            return
        release = "RELEASE SAVEPOINT holdfast_event; " if renewed else ""
        with self._translated():
            try:
                self.raw.execute(f"{release}SAVEPOINT holdfast_event")
            except psycopg.errors.InvalidSavepointSpecification:
                raise transaction_ended() from None

    def undo(self) -> None:
        with self._translated():
            try:
                self.raw.execute("ROLLBACK TO SAVEPOINT holdfast_event")
            except (
                psycopg.errors.InvalidSavepointSpecification,
                psycopg.errors.NoActiveSqlTransaction,
            ):
                raise transaction_ended() from None
            if self._handled is not None:
                self._handled.renew()

    def interrupt(self) -> None:
        with suppress(psycopg.Error):
            self.raw.cancel_safe(timeout=CANCEL_SECONDS)

    def abort(self) -> None:
        with suppress(psycopg.Error):
            self.raw.close()

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

    def load_rows(self, table: TableSpec, keys: Sequence[Key]) -> dict[Key, tuple[Row, int]]:
        columns = ", ".join(f"t.{_name(c.name)}" for c in table.columns)
        parts = [table.columns[i] for i in table.key_indexes]
        sql = (
            f'SELECT {columns}, t."{table.guard}" FROM {_name(table.name)} AS t '
            f"JOIN unnest({', '.join(map(_array, parts))}) "
            f"AS k ({', '.join(map(_name, table.key))}) "
            f"ON {' AND '.join(f't.{_name(n)} = k.{_name(n)}' for n in table.key)}"
        )
        json_at = [i for i, column in enumerate(table.columns) if column.kind == "JSON"]
        found: dict[Key, tuple[Row, int]] = {}
        with self._translated():
            kinds = [column.kind for column in parts]
            columns_of_keys = map(packed, kinds, zip(*keys, strict=True))
            for *stored, position in self.raw.execute(sql, [*columns_of_keys], binary=True):
                for i in json_at:
                    if stored[i] is not None:
                        stored[i] = _typed(stored[i], table.columns[i])
                found[tuple(stored[i] for i in table.key_indexes)] = tuple(stored), position
        return found

    def write_rows(self, table: TableSpec, rows: RowChanges) -> int:
        names = [*(column.name for column in table.columns), table.guard]
        rest = [name for name in names if name not in table.key]
        arrays = [*map(_array, table.columns), "%b::bigint[]"]
        sql = (
            f"INSERT INTO {_name(table.name)} AS t ({', '.join(map(_name, names))}) "
            f"SELECT * FROM unnest({', '.join(arrays)}) "
            f"ON CONFLICT ({', '.join(map(_name, table.key))}) DO UPDATE SET "
            + ", ".join(f"{_name(name)} = excluded.{_name(name)}" for name in rest)
            + f' WHERE t."{table.guard}" {table.guarded} excluded."{table.guard}"'
        )
        kinds = [*(column.kind for column in table.columns), "int"]
        values = [*map(packed, kinds, [*rows.columns, rows.positions])]
        with self._translated():
            return self.raw.execute(sql, values).rowcount

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        parts = [table.columns[i] for i in table.key_indexes]
        names = ", ".join(map(_name, table.key))
        sql = (
            f"DELETE FROM {_name(table.name)} WHERE ({names}) IN "
            f"(SELECT * FROM unnest({', '.join(map(_array, parts))}))"
        )
        with self._translated():
            self.raw.execute(sql, [list(part) for part in zip(*keys, strict=True)])

    @property
    def is_lost(self) -> bool:
        return self.raw.closed

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.raw.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except psycopg.Error as error:
            if (unavailable := self._database.unavailable(error)) is None:
                raise
            raise unavailable from error


def _rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """What a statement has returned; nothing, where it returns no rows."""
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []


def _name(name: str) -> str:
    """An identifier, quoted for a statement with parameters."""
    return quote(name).replace("%", "%%")


def _typed(value: Any, column: Column) -> Any:
    """A JSON value as the row type declares it; its keys may be more than text."""
    return msgspec.convert(value, column.annotation, str_keys=True)


def _array(column: Column) -> str:
    """A parameter that takes a list of the column's values."""
    if column.kind == "JSON":
        return "%b::text[]::jsonb[]"
    return f"%b::{TYPES[column.kind]}[]"
