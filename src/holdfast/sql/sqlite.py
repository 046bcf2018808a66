"""SQLite: one writer connection a process, used in turns; readers beside it in WAL mode.

The writer is also the only connection that checkpoints the WAL. Other processes write through
their own; SQLite's file lock and a busy timeout keep them apart.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from holdfast.core.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.ports import Checkpoint, Chunk, Lease, RowChange
from holdfast.core.signals import Bell
from holdfast.core.table import POSITION_COLUMN, Column, Key, TableSpec
from holdfast.sql.database import Row, causes, quote, transaction_ended
from holdfast.sql.queries import query
from holdfast.sql.sqlite_leases import FileLeases, LocalLeases, Watcher
from holdfast.sql.sqlite_locks import switch_to_wal, writing_process
from holdfast.sql.sqlite_values import TYPES, decode, encode, encode_key, literal, plain
from holdfast.sql.turns import Turns

BUSY_SECONDS = 10.0
"""How long a writer waits for another process's transaction."""

MAX_VARIABLES = 900
"""SQLite's oldest limit on parameters of a statement is 999."""

OLDEST_SQLITE = (3, 35, 0)

_AWAY = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CORRUPT,
    )
)
_REFUSED = frozenset((sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG))
_WORTH_REOPENING = frozenset((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


class SqliteDatabase:
    """A SQLite file, or a database in memory that lives as long as this object."""

    dialect = "sqlite"

    def __init__(self, path: Path | None) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old; "
                f"{'.'.join(map(str, OLDEST_SQLITE))} or later is needed"
            )
        self.bell = Bell()
        self.path = path
        self.main_file = f"/{uuid4()}" if path is None else str(path.absolute())
        """The file, or the name in memory, as SQLite itself lists it."""
        self._uri = (
            f"file:{self.main_file}?vfs=memdb"
            if path is None
            else path.absolute().as_uri().replace("?", "%3f").replace("#", "%23")
        )
        self._turns = Turns()
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        self._watcher: Watcher | None = None
        self._leases = LocalLeases() if path is None else FileLeases(path.absolute())

    def connect(self) -> SqliteConnection:
        return SqliteConnection(self, self.open_reader())

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        if self.path is None and self._turns.is_mine:
            # In memory a reader waits for the writer, and here that would be for itself.
            yield SqliteConnection(self, self._writer)
            return
        with self._readers_lock:
            raw = self._readers.pop() if self._readers else None
        raw = raw or self.open_reader()
        try:
            yield SqliteConnection(self, raw)
        except BaseException:
            raw.close()
            raise
        with self._readers_lock:
            self._readers.append(raw)

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        connection = SqliteConnection(self, None)
        with connection.transaction():
            yield connection

    appending = writing
    migrating = writing

    def settled(self, connection: SqliteConnection, after: int, limit: int) -> Chunk:
        # One writer: positions become visible in order.
        rows = connection.run("read", {"after": after, "limit": limit})
        return Chunk(self.raw_events(rows))

    def settled_end(self, connection: SqliteConnection) -> int:
        return int(connection.run("head")[0][0])

    def raw_events(self, rows: Iterable[Row]) -> list[RawEvent]:
        # Reads ids and times from their text, too, without a step in Python for each row.
        return msgspec.convert(rows, list[RawEvent])

    def listen(self) -> None:
        with self._readers_lock:
            if self._watcher is None and self.path is not None:
                self._watcher = Watcher(self.open_reader, self.bell)

    def announce(self) -> None:
        self.bell.ring()

    def lease(self, checkpoint: Checkpoint) -> Lease | None:
        self.listen()
        return self._leases.acquire(checkpoint.id)

    def leased(self, checkpoint_ids: Iterable[int]) -> set[int]:
        return self._leases.held(checkpoint_ids)

    def depose(self, checkpoint_id: int) -> None:
        self._leases.depose(checkpoint_id)

    def column_ddl(self, column: Column, *, with_default: bool) -> str:
        null = "" if column.optional else " NOT NULL"
        default = ""
        if with_default and column.default is not None:
            default = f" DEFAULT {literal(encode(column, column.check(column.default)))}"
        return f"{quote(column.name)} {TYPES[column.kind]}{null}{default}"

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        for cause in causes(error):
            if isinstance(cause, StoreUnavailable):
                return cause
            code = getattr(cause, "sqlite_errorcode", None)
            if isinstance(cause, sqlite3.Error) and code is not None and code & 0xFF in _AWAY:
                hint = self._busy_hint() if code == sqlite3.SQLITE_BUSY else ""
                return StoreUnavailable(f"SQLite at {self.path or ':memory:'}: {cause}{hint}")
        return None

    def refused(self, error: BaseException) -> bool:
        code = getattr(error, "sqlite_errorcode", None)
        if isinstance(error, sqlite3.Error) and code is not None:
            return code & 0xFF in _REFUSED
        # Python's own module could not even pass the value on.
        return isinstance(error, OverflowError | sqlite3.DataError | sqlite3.InterfaceError)

    def _busy_hint(self) -> str:
        """What an operator needs to know: nobody can take the lock from a process that hangs."""
        pid = None if self.path is None else writing_process(self.path)
        if pid == os.getpid():
            return (
                "; another connection of this process is inside a write transaction. To append "
                "in it, pass connection="
            )
        who = "another process" if pid is None else f"process {pid}"
        return (
            f"; {who} has been inside a write transaction for {BUSY_SECONDS:g} s. If it hangs, end "
            "it: what it has begun is rolled back, and nothing is lost"
        )

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._leases.close()
        for raw in (*self._readers, self._writer):
            if raw is not None:
                raw.close()
        self._readers, self._writer = [], None

    @contextmanager
    def turn(self) -> Iterator[sqlite3.Connection]:
        """The writer connection, for one thread at a time, in the order they came."""
        with self._turns.take():
            if self._writer is None:
                self._writer = self._open_writer()
            try:
                yield self._writer
            except BaseException as error:
                codes = [getattr(cause, "sqlite_errorcode", 0) or 0 for cause in causes(error)]
                if any(code & 0xFF in _WORTH_REOPENING for code in codes) and self.path is not None:
                    with suppress(sqlite3.Error):
                        self._writer.close()
                    self._writer = None
                raise

    def open_reader(self) -> sqlite3.Connection:
        raw = self._open()
        raw.execute("PRAGMA query_only = 1")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        return raw

    def _open_writer(self) -> sqlite3.Connection:
        raw = self._open()
        try:
            switch_to_wal(raw, BUSY_SECONDS)
        except sqlite3.DatabaseError as error:
            raw.close()
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                raise ConfigError(f"{self.path} is not a SQLite database; {error}") from error
            raise self.unavailable(error) or error from error
        # An append that was acknowledged survives a power cut.
        raw.execute("PRAGMA synchronous = FULL")
        return raw

    def _open(self) -> sqlite3.Connection:
        if self.path is not None and not self.path.absolute().parent.is_dir():
            raise ConfigError(
                f"can't open {self.path}: the folder {self.path.absolute().parent} is not there; "
                "make it first"
            )
        try:
            return sqlite3.connect(
                self._uri,
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self.unavailable(error) or error from error


class SqliteConnection:
    """Reads on a connection of its own; inside a transaction, everything on the writer."""

    def __init__(self, database: SqliteDatabase, reader: sqlite3.Connection | None) -> None:
        self._database, self._reader = database, reader
        self._writer: sqlite3.Connection | None = None

    @property
    def raw(self) -> sqlite3.Connection:
        raw = self._writer or self._reader
        assert raw is not None, "outside of a transaction this connection can't be used"
        return raw

    @property
    def tx(self) -> SqliteTx:
        return SqliteTx(self.raw)

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        with self._translated():
            adapted = {key: plain(value) for key, value in (params or {}).items()}
            return self.raw.execute(query(name, "sqlite"), adapted).fetchall()

    def script(self, sql: str) -> None:
        with self._translated():
            for statement in _statements(sql):
                self.raw.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._database.turn() as writer, self._translated():
            writer.execute("BEGIN IMMEDIATE")
            self._writer = writer
            try:
                yield
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:
                    with suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                raise
            finally:
                self._writer = None

    @contextmanager
    def handling(self) -> Iterator[SqliteTx]:
        self.raw.set_authorizer(_forbid_transaction_control)
        try:
            yield self.tx
        finally:
            self.raw.set_authorizer(None)

    def check_intact(self) -> None:
        if not self.raw.in_transaction:  # INSERT OR ROLLBACK, for one.
            raise transaction_ended()

    def load_rows(self, table: TableSpec, keys: Sequence[Key]) -> dict[Key, tuple[Row, int]]:
        columns = ", ".join(quote(c.name) for c in (*table.columns,)) + f', "{POSITION_COLUMN}"'
        key = ", ".join(map(quote, table.key))
        marks = f"({', '.join('?' * len(table.key))})"
        step = MAX_VARIABLES // len(table.key)
        found: dict[Key, tuple[Row, int]] = {}
        with self._translated():
            for start in range(0, len(keys), step):
                part = keys[start : start + step]
                sql = (
                    f"SELECT {columns} FROM {quote(table.name)} "
                    f"WHERE ({key}) IN (VALUES {', '.join([marks] * len(part))})"
                )
                flat = [v for key_ in part for v in encode_key(table, key_)]
                for *stored, position in self.raw.execute(sql, flat):
                    values = tuple(map(decode, table.columns, stored))
                    found[tuple(values[i] for i in table.key_indexes)] = values, position
        return found

    def write_rows(self, table: TableSpec, rows: Sequence[RowChange]) -> int:
        names = [*(column.name for column in table.columns), POSITION_COLUMN]
        rest = [name for name in names if name not in table.key]
        sql = (
            f"INSERT INTO {quote(table.name)} AS t ({', '.join(map(quote, names))}) "
            f"VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(map(quote, table.key))}) DO UPDATE SET "
            + ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in rest)
            + f' WHERE t."{POSITION_COLUMN}" < excluded."{POSITION_COLUMN}"'
        )
        with self._translated():
            cursor = self.raw.executemany(
                sql, ([*map(encode, table.columns, row.values), row.position] for row in rows)
            )
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
        return False  # There is nobody to lose it to.

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except sqlite3.Error as error:
            raise self._database.unavailable(error) or error from error


class SqliteTx:
    """The transaction as handlers see it."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.connection = raw
        self.has_appended = False

    def execute(self, sql: str, params: Any = ()) -> int:
        return self.connection.execute(sql, params).rowcount

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self.connection.executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[Row]:
        return self.connection.execute(sql, params).fetchall()


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
    """A handler that commits would part its rows from the checkpoint."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
