"""A connection to SQLite: it reads on its own, and writes on the one writer of the process."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError, RolledBack
from holdfast.model.event import RawEvent
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.source import Chunk
from holdfast.runtime.store.transaction import RowChanges
from holdfast.sql import event_ranges
from holdfast.sql.database import Row, quote
from holdfast.sql.forks import calls, graveyard
from holdfast.sql.queries import numbered, query
from holdfast.sql.sqlite.column_values import decode, encode_all, encode_key, plain
from holdfast.sql.sqlite.write_queue import WriteQueue

if TYPE_CHECKING:
    from holdfast.sql.sqlite.database import SqliteDatabase

BUSY_SECONDS = 10.0
"""Timeout of a writer that waits for another process's transaction."""

BUSY_PAUSE_SECONDS = 0.0005
"""Interval of its attempts."""

MANY_ROWS = 1_000
"""Minimum of rows in one batch for which the writer gets a larger cache."""

CACHE_KIB = 32 * 1024
"""Maximum size of that cache. Rows are spread over their table: with SQLite's own 2 MB, pages of a
larger table are read and written several times in one transaction. While the cache fills, reading a
range of the journal is slower."""

MAX_VARIABLES = 900
"""Maximum of parameters of a statement; the smallest limit of SQLite is 999."""

KEY_COUNTS = (1, 10, 100, 300)
"""Numbers of keys for which a statement is prepared, besides the maximum."""


class SqliteConnection:
    """Reads on a connection of its own; inside a transaction, everything on the writer."""

    def __init__(
        self,
        database: SqliteDatabase,
        reader: sqlite3.Connection | None,
        *,
        opens: bool = False,
    ) -> None:
        self._database, self._reader, self._opens = database, reader, opens
        self._writer: sqlite3.Connection | None = None
        database.keep(self)

    @property
    def raw(self) -> sqlite3.Connection:
        if self._opens and self._writer is None and self._reader is None:
            self._reader = self._database.open_reader()
        raw = self._writer or self._reader
        assert raw is not None, "outside of a transaction this connection can't be used"
        return raw

    @property
    def tx(self) -> SqliteTx:
        return SqliteTx(self.raw)

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        if self._writer is None:
            self._database.check_file()
        with self._translated():
            return self.raw.execute(query(name, "sqlite"), plain(params or {})).fetchall()

    def read(self, after: int, limit: int) -> list[RawEvent]:
        return self.raw_events(self.run("read", {"after": after, "limit": limit}))

    def settled(self, after: int, limit: int, *, ahead: bool = False) -> Chunk:  # noqa: ARG002
        return Chunk(self.read(after, limit))  # One writer: positions become visible in order.

    def forget_ahead(self) -> None: ...

    def settled_range(self, after: int, limit: int) -> EventRange:
        # This takes two thirds of the time, and mostly a range has no hole.
        found = event_ranges.between(self, after, after + limit)
        return found if found.events == limit else event_ranges.next_events(self, after, limit)

    def settled_end(self) -> int:
        return int(self.run("head")[0][0])

    def raw_events(self, rows: Iterable[Row]) -> list[RawEvent]:
        # Converts ids and times too, without a step in Python for each row.
        return msgspec.convert(rows, list[RawEvent])

    def run_native(self, sql: str, params: Mapping[str, Any]) -> list[Row]:
        with self._translated():
            return self.raw.execute(sql, plain(params)).fetchall()

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        with self._translated():
            self.raw.executemany(query(name, "sqlite"), map(plain, params))

    def run_columns(
        self, name: str, params: Mapping[str, Any], columns: Mapping[str, Sequence[int | str]]
    ) -> int:
        sql, names = numbered(query(name, "sqlite"))
        same, count = plain(params), len(next(iter(columns.values())))
        values = (columns[n] if n in columns else repeat(same[n], count) for n in names)
        with self._translated():
            return self.raw.executemany(sql, zip(*values, strict=True)).rowcount

    def run_at_once(
        self,
        name: str,  # noqa: ARG002
        params: Mapping[str, Any],  # noqa: ARG002
        rows: tuple[TableSpec, RowChanges] | None,  # noqa: ARG002
    ) -> list[Row] | None:
        return None  # There is no round trip to save.

    def script(self, sql: str) -> None:
        with self._translated():
            for statement in _statements(sql):
                self.raw.execute(statement)

    def drop_table(self, name: str) -> None:
        self.script(f"DROP TABLE IF EXISTS {quote(name)}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._database.turn() as writer, self._translated():
            _begin(writer, self._database.write_queue)
            self._writer = writer
            try:
                yield
                writer.execute("COMMIT")
            except BaseException:
                # In a child that was forked in here, the transaction is the parent's.
                if self._writer and not is_closed(writer) and writer.in_transaction:
                    with suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                raise
            finally:
                self._writer = None

    @contextmanager
    def handling(self, *, savepoint: bool) -> Iterator[SqliteTx]:
        if savepoint:
            self.savepoint(renewed=False)
        self.raw.set_authorizer(_forbid_transaction_control)
        try:
            yield self.tx
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
                error.add_note(
                    "The transaction is holdfast's: leave BEGIN, COMMIT and ROLLBACK to it."
                )
            raise
        finally:
            if not is_closed(self.raw):
                self.raw.set_authorizer(None)

    def savepoint(self, *, renewed: bool) -> None:
        with self._translated():
            if renewed:
                self.raw.execute("RELEASE SAVEPOINT holdfast_event")
            self.raw.execute("SAVEPOINT holdfast_event")

    def undo(self) -> None:
        self.check_intact()
        with self._translated():
            self.raw.execute("ROLLBACK TO SAVEPOINT holdfast_event")

    def interrupt(self) -> None:
        writer = self._writer
        if writer is not None:
            writer.interrupt()

    def abort(self) -> None:
        """Does nothing: a handler that goes on would write without a transaction."""

    def check_intact(self) -> None:
        if is_closed(self.raw):
            raise RolledBack("the handler has closed tx.connection, which is not its own")
        if not self.raw.in_transaction:  # COMMIT is forbidden, so it can't be in.
            raise RolledBack(
                "the transaction was rolled back inside the handler; leave ROLLBACK, such as that "
                "of INSERT OR ROLLBACK, out of it"
            )

    def has_rows(self, table: TableSpec) -> bool:
        with self._translated():
            found = self.raw.execute(f"SELECT EXISTS (SELECT 1 FROM {quote(table.name)})")
            return bool(found.fetchone()[0])

    def load_rows(self, table: TableSpec, keys: Sequence[Key]) -> dict[Key, tuple[Row, int]]:
        columns = ", ".join(quote(c.name) for c in table.columns) + f', "{table.guard}"'
        key = ", ".join(map(quote, table.key))
        marks = f"({', '.join('?' * len(table.key))})"
        step = MAX_VARIABLES // len(table.key)
        found: dict[Key, tuple[Row, int]] = {}
        with self._translated():
            for start in range(0, len(keys), step):
                part = keys[start : start + step]
                # Statements of a few sizes are prepared once; the last key fills up the rest.
                size = next((n for n in KEY_COUNTS if len(part) <= n < step), step)
                sql = (
                    f"SELECT {columns} FROM {quote(table.name)} "
                    f"WHERE ({key}) IN (VALUES {', '.join([marks] * size)})"
                )
                flat = [v for key_ in part for v in encode_key(table, key_)]
                flat += flat[-len(table.key) :] * (size - len(part))
                for *stored, position in self.raw.execute(sql, flat):
                    values = tuple(map(decode, table.columns, stored))
                    found[tuple(values[i] for i in table.key_indexes)] = values, position
        return found

    def write_rows(self, table: TableSpec, rows: RowChanges) -> int:
        names = [*(column.name for column in table.columns), table.guard]
        rest = [name for name in names if name not in table.key]
        sql = (
            f"INSERT INTO {quote(table.name)} AS t ({', '.join(map(quote, names))}) "
            f"VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(map(quote, table.key))}) DO UPDATE SET "
            + ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in rest)
            + f' WHERE t."{table.guard}" {table.guarded} excluded."{table.guard}"'
        )
        with self._translated():
            if len(rows) >= MANY_ROWS:
                self.raw.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            columns = map(encode_all, table.columns, rows.columns)
            cursor = self.raw.executemany(sql, zip(*columns, rows.positions, strict=True))
        return cursor.rowcount

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        where = " AND ".join(f"{quote(name)} = ?" for name in table.key)
        with self._translated():
            self.raw.executemany(
                f"DELETE FROM {quote(table.name)} WHERE {where}",
                [encode_key(table, key) for key in keys],
            )

    @property
    def is_lost(self) -> bool:
        return False  # There is no server.

    def close(self) -> None:
        if self._reader is not None:
            with calls.inside():
                self.let_go()

    def let_go(self) -> None:
        """Closes its own reader; the next read opens another."""
        if self._opens and self._reader is not None:
            self._reader.close()
            self._reader = None

    def abandon(self) -> None:
        """In the child of a fork: what is open is the parent's."""
        graveyard.extend((self._reader, self._writer))
        self._reader = self._writer = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with calls.inside():
                yield
        except HoldfastError:
            raise
        except sqlite3.Error as error:
            if (unavailable := self._database.unavailable(error)) is None:
                raise
            raise unavailable from error


class SqliteTx:
    """The transaction as handlers see it."""

    is_behind = False  # Every statement has ended when it returns.

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.connection = raw
        self.has_appended = False

    def execute(self, sql: str, params: Any = ()) -> int:
        return self.connection.execute(sql, params).rowcount

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self.connection.executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[Row]:
        return self.connection.execute(sql, params).fetchall()

    def write(self, sql: str, params: Any = ()) -> None:
        self.connection.execute(sql, params)

    def flush(self) -> None: ...


def _begin(writer: sqlite3.Connection, write_queue: WriteQueue | None) -> None:
    """Begins to write. SQLite's own busy timeout often misses the gaps between other writers."""
    until = time.monotonic() + BUSY_SECONDS
    writer.execute("PRAGMA busy_timeout = 0")
    try:
        with write_queue.passing(until) if write_queue else nullcontext():
            while True:
                try:
                    writer.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not is_busy or time.monotonic() >= until:
                        raise
                    time.sleep(BUSY_PAUSE_SECONDS)
    finally:
        writer.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def is_closed(raw: sqlite3.Connection) -> bool:
    try:
        raw.total_changes  # noqa: B018
    except sqlite3.ProgrammingError:
        return True
    return False


def _statements(sql: str) -> Iterator[str]:
    """Splits a script, because executescript would commit the open transaction."""
    statement = ""
    for part in re.split(r"(?<=;)", sql):
        statement += part
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _forbid_transaction_control(
    action: int, _1: str | None, _2: str | None, _3: str | None, _4: str | None
) -> int:
    """A handler must not commit its rows without the checkpoint."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
