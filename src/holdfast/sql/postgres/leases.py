"""Leases and wake-ups on PostgreSQL.

A lease is a session-level advisory lock: it is held while its connection lives. One connection per
process holds all leases and listens for wake-ups. When it is lost, all leases are lost at once.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from holdfast.errors import StoreUnavailable
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.postgres.notify import CHANNEL, Connect, Notifier

_KEY = "'holdfast_checkpoint'::regclass::oid::bigint::bit(32)::integer, %s::integer"

TAKE = f"SELECT pg_try_advisory_lock({_KEY})"

RELEASE = f"SELECT pg_advisory_unlock({_KEY})"
"""The key is our table's OID and the checkpoint's id, so that each schema has its own leases."""


class LeaseConnection:
    """Holds the leases of this process, and wakes its runners when another process has appended."""

    def __init__(
        self, connect: Connect, wake: WakeSignal, notifier: Notifier, hide: Callable[[str], str]
    ) -> None:
        """`notifier`: its notifications are ignored; this process wakes its runners itself.

        `hide` removes the secrets of the URL from a message.
        """
        self._connect, self._wake, self._notifier = connect, wake, notifier
        self._hide = hide
        self._lock = threading.RLock()
        self._raw: psycopg.Connection[Any] | None = None
        self._held: set[int] = set()
        self._thread: threading.Thread | None = None
        self._interrupt: socket.socket | None = None

    def listen(self) -> None:
        """From now on other processes' appends wake the runners too."""
        with self._lock:
            self._open()

    def acquire(self, checkpoint_id: int) -> PostgresLease | None:
        with self._lock:
            if checkpoint_id in self._held:
                return None  # The server would let the same connection take it once more.
            raw = self._open()
            row = self._execute(raw, TAKE, checkpoint_id)
            if not row[0]:
                return None
            self._held.add(checkpoint_id)
            return PostgresLease(self, raw, checkpoint_id)

    def release(self, raw: psycopg.Connection[Any], checkpoint_id: int) -> None:
        with self._lock, suppress(StoreUnavailable):
            if raw is self._raw:
                self._held.discard(checkpoint_id)
                self._execute(raw, RELEASE, checkpoint_id)

    def is_current(self, raw: psycopg.Connection[Any]) -> bool:
        return raw is self._raw

    def abandon(self) -> None:
        """In the child of a fork: the connection and its leases are the parent's."""
        self._lock = threading.RLock()
        self._raw, self._held = None, set()
        if self._interrupt is not None:
            self._interrupt.close()  # To shut it down would end the parent's wait.
            self._interrupt = None

    def close(self) -> None:
        with self._lock:
            self._lose()
        if self._thread is not None:
            self._thread.join()

    def _open(self) -> psycopg.Connection[Any]:
        if self._raw is None:
            raw = self._connect()
            raw.add_notify_handler(lambda _: self._wake.notify())
            try:
                raw.execute(f"LISTEN {CHANNEL}")
            except psycopg.Error as error:
                raw.close()
                raise self._lost(error) from error
            inner, self._interrupt = socket.socketpair()
            self._raw = raw
            self._thread = threading.Thread(
                target=self._listen, args=(raw, inner), name="holdfast wake-ups", daemon=True
            )
            self._thread.start()
        return self._raw

    def _execute(
        self, raw: psycopg.Connection[Any], sql: str, checkpoint_id: int
    ) -> tuple[Any, ...]:
        try:
            row = raw.execute(sql, (checkpoint_id,)).fetchone()
        except psycopg.Error as error:
            self._lose()
            raise self._lost(error) from error
        assert row is not None
        return tuple(row)

    def _lose(self) -> None:
        """Drops the connection and its leases, and wakes the runners, which notice."""
        if self._raw is not None:
            with suppress(psycopg.Error):
                self._raw.close()
            self._raw = None
        self._held.clear()
        if self._interrupt is not None:
            # To close it would have no effect while a child that was just forked has it open.
            with suppress(OSError):
                self._interrupt.shutdown(socket.SHUT_RDWR)
            self._interrupt.close()
            self._interrupt = None
        self._wake.notify()

    def _listen(self, raw: psycopg.Connection[Any], interrupt: socket.socket) -> None:
        with (
            interrupt,
            selectors.DefaultSelector() as selector,
            suppress(psycopg.Error, ValueError, OSError),
        ):
            selector.register(raw.fileno(), selectors.EVENT_READ)
            selector.register(interrupt, selectors.EVENT_READ)
            while all(key.fileobj is not interrupt for key, _ in selector.select()):
                with self._lock:
                    if raw is not self._raw:
                        return
                    # Raises if the server has closed the connection.
                    raw.pgconn.consume_input()
                    senders = {notify.be_pid for notify in iter(raw.pgconn.notifies, None)}
                    if senders - {self._notifier.backend_pid}:
                        self._wake.notify()
        with self._lock:
            if raw is self._raw:
                self._lose()

    def _lost(self, error: psycopg.Error) -> StoreUnavailable:
        message = self._hide(str(error).strip())
        return StoreUnavailable(
            f"the connection that holds the leases is lost: {message}", connection_lost=True
        )


class PostgresLease:
    """A lease, held while the connection that took it lives."""

    was_given_back = False  # Only the checkpoint's state tells.

    def __init__(
        self, connection: LeaseConnection, raw: psycopg.Connection[Any], checkpoint_id: int
    ) -> None:
        self._connection, self._raw, self._id = connection, raw, checkpoint_id
        self._released = False

    @property
    def held(self) -> bool:
        return not self._released and self._connection.is_current(self._raw)

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._connection.release(self._raw, self._id)
