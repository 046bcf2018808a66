"""The transaction on PostgreSQL, as handlers see it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import RLock
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from holdfast.sql.database import Row
from holdfast.sql.postgres.handler_statements import Statements

MAX_CURSORS = 32
"""Statements for which a cursor is kept, in one transaction."""

GATHERED_STATEMENTS = 32
"""Written statements that are gathered before they are sent: each packet wakes the server."""

UNGATHERED_STATEMENTS = 4
"""The first ones are not: if they are waited for soon, that would cost more than it saves."""


class PostgresTx:
    """The transaction as handlers see it.

    What is written goes through psycopg's pipeline mode, which begins with the first `write` and
    ends before anything else is done with the connection: whoever uses it sees a plain one.
    """

    def __init__(self, raw: psycopg.Connection[Row], statements: Statements) -> None:
        self._raw, self._statements = raw, statements
        self._is_handed_out = False
        """Whether a handler has the driver's connection, and may have done anything with it."""
        self.has_appended = False
        self.callbacks: list[Callable[[], Any]] = []
        self.failed: BaseException | None = None
        self._pipeline: AbstractContextManager[psycopg.Pipeline] | None = None
        self._error: psycopg.Error | None = None
        self._gathered = 0
        self._is_stale = False
        self._cursors: dict[str, psycopg.Cursor[Row]] = {}
        # A handler may use several threads, and a pipeline is entered and left by one at a time.
        self._lock = RLock()

    @property
    def connection(self) -> psycopg.Connection[Row]:
        with self._lock:
            self._settle()
            # Cursors would not know the adapters that a handler registers with the connection.
            self._cursors.clear()
            self._statements.doubt()
            self._is_handed_out = True
        return self._raw

    def execute(self, sql: str, params: Any = ()) -> int:
        with self._lock:
            if (result := self._prepared(sql, params)) is not None:
                return result.command_tuples or 0
            self._statements.driver_runs(sql, params)
            return self._cursor(sql).execute(sql, params or None).rowcount

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        with self._lock:
            self._settle()
            self._statements.driver_runs(sql, True)
            self._cursor(sql).executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[Row]:
        with self._lock:
            if (result := self._prepared(sql, params)) is not None:
                return self._statements.rows(result)
            self._statements.driver_runs(sql, params)
            return self._raw.cursor(row_factory=tuple_row).execute(sql, params or None).fetchall()

    def write(self, sql: str, params: Any = ()) -> None:
        with self._lock:
            if self._error is not None:
                return  # Nothing is done any more until `flush` has said why.
            if self._statements.forgets(sql):
                # Until its answer comes, the driver would take what it sends for prepared.
                self.execute(sql, params)
                return
            if self._pipeline is None:
                self.renew()
                pipeline = self._raw.pipeline()
                pipeline.__enter__()
                self._pipeline = pipeline
                self._gathered = 0
            try:
                self._cursor(sql).execute(sql, params or None)
            except psycopg.Error as error:
                if error.sqlstate is None:
                    raise  # By the client: it concerns this statement, or the connection is gone.
                self._error = error
            self._gathered += 1
            if self._gathered % GATHERED_STATEMENTS == UNGATHERED_STATEMENTS:
                _gather(self._raw, on=False)
                _gather(self._raw, on=True)

    @property
    def is_behind(self) -> bool:
        return self._pipeline is not None

    def flush(self) -> None:
        with self._lock:
            if self._pipeline is None:
                return
            pipeline, self._pipeline = self._pipeline, None
            error, self._error = self._error, None
            if self._gathered >= UNGATHERED_STATEMENTS:
                _gather(self._raw, on=False)
            try:
                pipeline.__exit__(None, None, None)
            except psycopg.Error as found:
                error = error or found
            if error is not None:
                self.failed, self._is_stale = error, True
                raise error

    def leave(self) -> None:
        """Ends the pipeline, whatever has become of what was written."""
        with suppress(psycopg.Error):
            self.flush()

    def renew(self) -> None:
        """Makes psycopg forget the statements that it takes to be prepared, if some are not.

        It has noted them when it sent them, and the server has passed over all that came after an
        error. Rolling back is what makes psycopg forget.
        """
        if self._is_stale and self._raw.pgconn.transaction_status == TransactionStatus.INTRANS:
            self._statements.doubt()
            with self._raw.transaction(force_rollback=True):
                self._is_stale = False

    def after_commit(self, callback: Callable[[], Any]) -> None:
        self.callbacks.append(callback)

    def _settle(self) -> None:
        self.flush()
        self.renew()

    def _prepared(self, sql: str, params: Any) -> PGresult | None:
        """What comes of a statement that is prepared; None if it is the driver's to run."""
        self._settle()
        return None if self._is_handed_out else self._statements.run(sql, params)

    def _cursor(self, sql: object) -> psycopg.Cursor[Row]:
        """A cursor for the statement: used again, it need not find out how to send parameters."""
        if not isinstance(sql, str):
            return self._raw.cursor()
        cursor = self._cursors.get(sql)
        if cursor is None or cursor.closed:
            if len(self._cursors) >= MAX_CURSORS:
                self._cursors.clear()
            cursor = self._cursors[sql] = self._raw.cursor()
        return cursor


def _gather(raw: psycopg.Connection[Row], *, on: bool) -> None:
    """Has the system gather small packets, or send what it has; only Linux can, and only for TCP.

    What is gathered goes by itself after a fifth of a second.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, psycopg.Error), borrowed_socket(raw) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)


@contextmanager
def borrowed_socket(raw: psycopg.Connection[Row]) -> Iterator[socket.socket]:
    """A connection's socket, which stays the driver's."""
    borrowed = socket.socket(fileno=raw.fileno())
    try:
        yield borrowed
    finally:
        borrowed.detach()
