"""SQLite: one writer connection per process, used by one thread at a time, and readers in WAL mode.

The writer is also the only connection that checkpoints the WAL. Each process has its own writer;
SQLite's file lock and a busy timeout keep them apart.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from holdfast.errors import AppendError, ConfigError, StoreUnavailable
from holdfast.model.rows.row_type import Column
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.database import Run, causes, quote, translating
from holdfast.sql.forks import at_fork, calls, graveyard
from holdfast.sql.sqlite.change_watcher import ChangeWatcher
from holdfast.sql.sqlite.column_values import TYPES, encode, literal, plain
from holdfast.sql.sqlite.connection import BUSY_SECONDS, SqliteConnection, is_closed
from holdfast.sql.sqlite.fair_lock import FairLock
from holdfast.sql.sqlite.leases import FileLeases, LocalLeases
from holdfast.sql.sqlite.range_dialect import RANGE_DIALECT
from holdfast.sql.sqlite.write_queue import WriteQueue, switch_to_wal, writing_process

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
    range_dialect = RANGE_DIALECT
    table_options = " WITHOUT ROWID"  # Rows are found by their key: one B-tree instead of two.

    def __init__(self, path: Path | None) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old; "
                f"{'.'.join(map(str, OLDEST_SQLITE))} or later is needed"
            )
        self.path = path
        self.main_file = f"/{uuid4()}" if path is None else str(path.absolute())
        """The file, or the name in memory, as SQLite itself lists it."""
        self._uri = (
            f"file:{self.main_file}?vfs=memdb"
            if path is None
            else path.absolute().as_uri().replace("?", "%3f").replace("#", "%23")
        )
        self._file: tuple[int, int] | None = None
        """Device and inode of the file that was opened first."""
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._connections: WeakSet[SqliteConnection] = WeakSet()
        self.write_queue = None if path is None else WriteQueue(path.absolute())
        self._begin_process()
        at_fork(self, SqliteDatabase._forked, before=SqliteDatabase._let_go)

    def _begin_process(self) -> None:
        """Makes what belongs to one process: threads, locks and leases."""
        self.wake = WakeSignal()
        self._write_lock = FairLock()
        self._readers_lock = threading.Lock()
        self._watcher: ChangeWatcher | None = None
        path = self.path
        self._leases = LocalLeases() if path is None else FileLeases(path.absolute())

    def _let_go(self) -> None:
        """Before a fork: closes connections, which are opened again when they are needed."""
        if self.path is None:
            return  # It ends with its last connection.
        if self._watcher is not None:
            self._watcher.let_go()
        for connection in list(self._connections):
            connection.let_go()
        self._close_shared()

    def _forked(self) -> None:
        """In the child of a fork: leaves to the parent what is the parent's."""
        self._leases.abandon()
        if self.write_queue is not None:
            self.write_queue.close()
        for connection in list(self._connections):
            connection.abandon()
        if self.path is not None:
            # Open only if the fork came from inside a transaction. To close them here could
            # remove the parent's WAL.
            graveyard.extend((*self._readers, self._writer))
            self._readers, self._writer = [], None
        self._begin_process()

    @property
    def exists(self) -> bool:
        self._check_folder()
        return self.path is None or self.path.exists()

    def connect(self) -> SqliteConnection:
        return SqliteConnection(self, None, opens=True)

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        with calls.inside(), self._reading() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[SqliteConnection]:
        if self.path is None and self._write_lock.is_mine:
            # In memory a reader waits for the writer, which is this very code.
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

    migrating = writing

    def appending(self, lane: str) -> AbstractContextManager[SqliteConnection]:
        del lane  # Writers queue for the file.
        return self.writing()

    def changing(self, lock_seconds: float) -> AbstractContextManager[SqliteConnection]:
        del lock_seconds  # Writers queue anyway.
        return self.writing()

    def plain(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return plain(params)

    def listen(self) -> None:
        with self._readers_lock:
            if self._watcher is None and self.path is not None:
                self._watcher = ChangeWatcher(self.open_reader, self.wake)

    def announce(self) -> None:
        self.wake.notify()

    def lease(self, checkpoint: Checkpoint) -> Lease | None:
        self.listen()
        return self._leases.acquire(checkpoint.id)

    def leased(self, checkpoint_ids: Iterable[int]) -> set[int]:
        return self._leases.held(checkpoint_ids)

    def depose(self, checkpoint_id: int) -> None:
        self._leases.depose(checkpoint_id)

    def cut_off(self, checkpoint_id: int) -> None:
        """Does nothing: no process can end another one's transaction."""

    def check_joinable(self, run: Run) -> None:
        # A transaction of SQLite covers one file.
        ((theirs,),) = run("main_file", {})
        if theirs == self.main_file:
            return
        if self.path is None or not theirs or not self.path.samefile(theirs):
            raise AppendError(
                f"this connection is on {theirs or 'a database in memory'}, the journal on "
                f"{self.path or 'another one in memory'}; connection= joins a transaction of the "
                "journal's own database"
            )

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
        # Python's own module could not pass the value on.
        return isinstance(
            error, OverflowError | UnicodeEncodeError | sqlite3.DataError | sqlite3.InterfaceError
        )

    def _busy_hint(self) -> str:
        """For operators: nobody can take the lock from a process that hangs."""
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
        if self.write_queue is not None:
            self.write_queue.close()
        if self._readers or self._writer:
            with calls.inside():
                self._close_shared()
        self._file = None

    @contextmanager
    def turn(self) -> Iterator[sqlite3.Connection]:
        """The writer connection, for one thread at a time, first come, first served."""
        with self._write_lock.take(), calls.inside():
            self.check_file()
            if self._writer is None:
                self._writer = self._open_writer()
            try:
                yield self._writer
            except BaseException as error:
                codes = [getattr(cause, "sqlite_errorcode", 0) or 0 for cause in causes(error)]
                if self._writer is None or is_closed(self._writer):
                    self._writer = None
                elif self.path is not None and any(c & 0xFF in _WORTH_REOPENING for c in codes):
                    with suppress(sqlite3.Error):
                        self._writer.close()
                    self._writer = None
                raise

    def check_file(self) -> None:
        """Raises StoreUnavailable if the path has another file than the one that is open.

        What is written to a file without a name is lost.
        """
        if self._file is None:
            return
        assert self.path is not None
        try:
            found = self.path.stat()
        except FileNotFoundError:
            what = "was removed"
        else:
            if (found.st_dev, found.st_ino) == self._file:
                return
            what = "was replaced"
        raise StoreUnavailable(
            f"SQLite at {self.path}: the file {what} while this process had it open, and what is "
            "written to the old one would be lost; restart all processes that use it"
        )

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
            if (unavailable := self.unavailable(error)) is None:
                raise
            raise unavailable from error
        # An acknowledged append survives a power cut.
        raw.execute("PRAGMA synchronous = FULL")
        return raw

    def _check_folder(self) -> None:
        if self.path is not None and not self.path.absolute().parent.is_dir():
            raise ConfigError(
                f"can't open {self.path}: the folder {self.path.absolute().parent} is not there; "
                "make it first"
            )

    def _open(self) -> sqlite3.Connection:
        self._check_folder()
        self.check_file()
        with translating(sqlite3.Error, self.unavailable):
            raw = sqlite3.connect(
                self._uri,
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        if self.path is not None and self._file is None:
            opened = self.path.stat()
            self._file = opened.st_dev, opened.st_ino
        return raw
