"""SQLite: one writer connection a process, used in turns; readers beside it in WAL mode.

The writer is also the only connection that checkpoints the WAL. Other processes write through
their own; SQLite's file lock and a busy timeout keep them apart.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import msgspec

from holdfast.core.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.ports import Checkpoint, Chunk, Lease, RolledBack, RowChange
from holdfast.core.signals import Bell
from holdfast.core.table import POSITION_COLUMN, Column, Key, TableSpec
from holdfast.sql.database import Row, causes, quote
from holdfast.sql.forks import at_fork, calls
from holdfast.sql.queries import query
from holdfast.sql.sqlite_leases import FileLeases, LocalLeases, Watcher
from holdfast.sql.sqlite_locks import switch_to_wal, writing_process
from holdfast.sql.sqlite_values import TYPES, decode, encode, encode_key, literal, plain
from holdfast.sql.turns import Turns

BUSY_SECONDS = 10.0
"""How long a writer waits for another process's transaction."""

BUSY_PAUSE_SECONDS = 0.0005
"""How long it waits between two looks."""

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

_graveyard: list[sqlite3.Connection | None] = []
"""Connections of a parent process, kept so that they are never closed in this one."""


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
        self._connections: WeakSet[SqliteConnection] = WeakSet()
        self._watcher: Watcher | None = None
        self._leases = LocalLeases() if path is None else FileLeases(path.absolute())
        at_fork(self, SqliteDatabase.forked, before=SqliteDatabase.let_go)

    def connect(self) -> SqliteConnection:
        return SqliteConnection(self, None, opens=True)

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        with calls.inside(), self._reading() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[SqliteConnection]:
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
            f"; it was busy for {BUSY_SECONDS:g} s, at the end with a write transaction of {who}. "
            "If that one hangs, end it: what it has begun is rolled back, and nothing is lost"
        )

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._leases.close()
        if self._readers or self._writer:
            with calls.inside():
                self._close_shared()

    def let_go(self) -> None:
        if self.path is None:
            return  # Nobody else can reach it, and it ends with its last connection.
        if self._watcher is not None:
            self._watcher.let_go()
        for connection in list(self._connections):
            connection.let_go()
        self._close_shared()

    def forked(self) -> None:
        self.bell.renew()
        self._turns.forked()
        self._leases.forked()
        self._readers_lock = threading.Lock()
        self._watcher = None
        for connection in list(self._connections):
            connection.forked()
        if self.path is not None:
            # Open only where the fork came from inside a transaction. To close them here could
            # remove the WAL under the parent.
            _graveyard.extend((*self._readers, self._writer))
            self._readers, self._writer = [], None

    @contextmanager
    def turn(self) -> Iterator[sqlite3.Connection]:
        """The writer connection, for one thread at a time, in the order they came."""
        with self._turns.take(), calls.inside():
            if self._writer is None:
                self._writer = self._open_writer()
            try:
                yield self._writer
            except BaseException as error:
                codes = [getattr(cause, "sqlite_errorcode", 0) or 0 for cause in causes(error)]
                if self._writer is None or _is_closed(self._writer):
                    self._writer = None
                elif self.path is not None and any(c & 0xFF in _WORTH_REOPENING for c in codes):
                    with suppress(sqlite3.Error):
                        self._writer.close()
                    self._writer = None
                raise

    def keep(self, connection: SqliteConnection) -> None:
        self._connections.add(connection)

    def open_reader(self) -> sqlite3.Connection:
        raw = self._open()
        raw.execute("PRAGMA query_only = 1")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        return raw

    def _close_shared(self) -> None:
        for raw in (*self._readers, self._writer):
            if raw is not None:
                raw.close()
        self._readers, self._writer = [], None

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
        with self._translated():
            adapted = {key: plain(value) for key, value in (params or {}).items()}
            return self.raw.execute(query(name, "sqlite"), adapted).fetchall()

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        with self._translated():
            rows = ({key: plain(value) for key, value in row.items()} for row in params)
            self.raw.executemany(query(name, "sqlite"), rows)

    def script(self, sql: str) -> None:
        with self._translated():
            for statement in _statements(sql):
                self.raw.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._database.turn() as writer, self._translated():
            _begin(writer)
            self._writer = writer
            try:
                yield
                writer.execute("COMMIT")
            except BaseException:
                # In a child that was forked in here it is the parent's to roll back.
                if self._writer and not _is_closed(writer) and writer.in_transaction:
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
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
                error.add_note(
                    "The transaction is holdfast's: leave BEGIN, COMMIT and ROLLBACK to it."
                )
            raise
        finally:
            if not _is_closed(self.raw):
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

    def check_intact(self) -> None:
        if _is_closed(self.raw):
            raise RolledBack("the handler has closed tx.connection, which is not its own")
        if not self.raw.in_transaction:  # COMMIT is forbidden, so it can't be in.
            raise RolledBack(
                "the transaction was rolled back inside the handler; leave ROLLBACK, such as that "
                "of INSERT OR ROLLBACK, out of it"
            )

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
            + f' WHERE t."{POSITION_COLUMN}" <= excluded."{POSITION_COLUMN}"'
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
            with calls.inside():
                self.let_go()

    def let_go(self) -> None:
        """Closes its own reader, which is opened again when it is needed."""
        if self._opens and self._reader is not None:
            self._reader.close()
            self._reader = None

    def forked(self) -> None:
        _graveyard.extend((self._reader, self._writer))
        self._reader = self._writer = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with calls.inside():
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
        self.callbacks: list[Callable[[], Any]] = []

    def execute(self, sql: str, params: Any = ()) -> int:
        return self.connection.execute(sql, params).rowcount

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self.connection.executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[Row]:
        return self.connection.execute(sql, params).fetchall()

    def after_commit(self, callback: Callable[[], Any]) -> None:
        self.callbacks.append(callback)


def _begin(writer: sqlite3.Connection) -> None:
    """Begins to write. Other processes' writers leave gaps that SQLite's own pauses often miss."""
    until = time.monotonic() + BUSY_SECONDS
    writer.execute("PRAGMA busy_timeout = 0")
    try:
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


def _is_closed(raw: sqlite3.Connection) -> bool:
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
    """A handler that commits would part its rows from the checkpoint."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
