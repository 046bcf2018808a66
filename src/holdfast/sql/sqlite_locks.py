"""SQLite's locks, where its own busy timeout is not enough."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

WRITE_LOCK_BYTE = "120"
"""Where a writer in WAL mode locks the -shm file: https://www.sqlite.org/walformat.html"""

RETRY_SECONDS = 0.005


def switch_to_wal(raw: sqlite3.Connection, timeout_seconds: float) -> None:
    """Puts the database in WAL mode, and waits for others who do the same to a new file.

    SQLite itself does not wait there: two who upgrade their locks could wait for each other.
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


def writing_process(database: Path) -> int | None:
    """The process that is inside a write transaction; None where the system does not tell.

    Read from Linux's table of locks. To open the -shm file and ask about its locks would, on
    closing it, drop our own.
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
