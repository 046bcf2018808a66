"""Notifications to other processes, after the commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from holdfast.errors import StoreUnavailable
from holdfast.sql.postgres.pooler import backend_pid

CHANNEL = "holdfast"

GATHER_SECONDS = 0.002
"""Interval between two notifications: appends in between share one."""

# Nothing is lost with a notification, so its commit need not be flushed.
_NOTIFY = f"BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {CHANNEL}; COMMIT".encode()

Connect = Callable[[], psycopg.Connection[Any]]


class Notifier:
    """Tells other processes that the journal has grown, after the commit, many appends at once.

    NOTIFY inside the append's transaction would serialise all commits of the database.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._thread: threading.Thread | None = None
        self.backend_pid: int | None = None
        """The server's process of the connection that notifies."""
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closing = threading.Event()

    def kick(self) -> None:
        """Returns at once; the notification follows on a connection of its own."""
        self._wanted.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closing.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="holdfast notifier", daemon=True
                    )
                    self._thread.start()

    def close(self) -> None:
        """Sends a notification that is due, and ends."""
        with self._lock:
            self._closing.set()
            thread = self._thread
        self._wanted.set()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        raw: psycopg.Connection[Any] | None = None
        while True:
            self._wanted.wait()
            self._wanted.clear()
            # A lost notification costs latency, nothing else: polling goes on.
            try:
                if raw is None:
                    raw = self._connect()
                    self.backend_pid = backend_pid(raw)
                # Without a cursor: no other thread uses this connection, and nothing is converted.
                result = raw.pgconn.exec_(_NOTIFY)
                if result.status != ExecStatus.COMMAND_OK:
                    raise psycopg.OperationalError("the connection is lost")
            except (psycopg.Error, StoreUnavailable):
                if raw is not None:
                    raw.close()
                raw = None
            if self._closing.wait(GATHER_SECONDS):
                break
        if raw is not None:
            raw.close()
