"""A watcher of the file, for changes by other processes."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from holdfast.errors import StoreUnavailable
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.forks import calls
from holdfast.sql.queries import query

CHECK_SECONDS = 0.005
"""Interval of checks whether another connection has written."""

QUIET_CHECK_SECONDS = 0.05
"""Maximum of this interval, after a time without changes."""

QUIET_SHARE = 0.01
"""The interval as a share of the time without changes: an unnoticeable delay."""


class ChangeWatcher:
    """Wakes runners when another process has appended. Costs a PRAGMA every 5 to 50 ms.

    While no runner waits, it checks seldom: each check takes the interpreter lock.
    """

    def __init__(self, open_reader: Callable[[], sqlite3.Connection], wake: WakeSignal) -> None:
        self._open_reader, self._wake = open_reader, wake
        self._raw: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._head: int | None = None
        self._changed_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._wake.awaited.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            # An error here costs only latency: polling goes on.
            with suppress(sqlite3.Error, StoreUnavailable):
                while not self._pause():
                    with calls.inside():
                        self._check()
            with calls.inside():
                self.let_go()
            self._stop.wait(1.0)

    def let_go(self) -> None:
        """Closes the connection; the next check opens another."""
        if self._raw is not None:
            self._raw.close()
        self._raw = self._seen = None

    def _pause(self) -> bool:
        """Waits until the next check; returns whether to stop instead."""
        self._wake.awaited.wait(QUIET_CHECK_SECONDS)
        quiet_seconds = time.monotonic() - self._changed_at
        pause_seconds = max(CHECK_SECONDS, quiet_seconds * QUIET_SHARE)
        return self._stop.wait(min(pause_seconds, QUIET_CHECK_SECONDS))

    def _check(self) -> None:
        if self._raw is None:
            self._raw = self._open_reader()
        (version,) = self._raw.execute("PRAGMA data_version").fetchone()
        if version == self._seen:
            return
        self._seen, self._changed_at = version, time.monotonic()
        (now,) = self._raw.execute(query("head", "sqlite")).fetchone()
        if now != self._head:
            self._head = now
            self._wake.notify()
