"""A fair queue for SQLite's write lock, and helpers for its locks."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.sql.sqlite.side_file import open_side_file

WRITE_LOCK_BYTE = "120"
"""Where a writer in WAL mode locks the -shm file: https://www.sqlite.org/walformat.html"""

RETRY_SECONDS = 0.005
"""Interval of attempts to switch to WAL mode."""

TURN_SECONDS = 0.001
"""Interval at which processes behind the first waiter try to become the first."""

PATIENCE_SECONDS = 2.0
"""Timeout of waiting behind the first waiter, which may be frozen."""


def switch_to_wal(raw: sqlite3.Connection, timeout_seconds: float) -> None:
    """Puts the database in WAL mode, and waits for other processes that do the same.

    SQLite itself does not wait there: two processes that upgrade their locks could deadlock.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            raw.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


class WriteQueue:
    """Lets one process at a time wait for the write lock.

    SQLite has no queue for its write lock, and the last writer usually wins it again. A waiter
    locks the file `-turn`, so that all others queue behind it.
    """

    def __init__(self, database: Path) -> None:
        self._database, self._path = database, Path(f"{database}-turn")
        self._file: int | None = None

    @contextmanager
    def passing(self, until: float) -> Iterator[None]:
        """The block waits for the write lock. It is entered at `until` at the latest."""
        until = min(until, time.monotonic() + PATIENCE_SECONDS)
        file = self._open()
        if file is None:
            yield
            return
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(TURN_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; also in the child of a fork, which needs an open file of its own."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int | None:
        if self._file is None:
            with suppress(OSError):  # Without the file, only fairness is lost.
                self._file = open_side_file(self._database, self._path)
        return self._file


def writing_process(database: Path) -> int | None:
    """The process that is inside a write transaction; None if the system does not tell.

    Read from /proc/locks. To open the -shm file and query its locks would drop our own locks when
    it is closed.
    """
    try:
        inode = str(Path(f"{database}-shm").stat().st_ino)
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in locks:  # 1: POSIX  ADVISORY  WRITE 708 fe:00:9994786 120 120
        match line.split():
            case [_, "POSIX", _, "WRITE", pid, file, first, _] if first == WRITE_LOCK_BYTE:
                if file.rpartition(":")[2] == inode and int(pid) > 0:
                    return int(pid)
    return None
