"""The transaction on PostgreSQL, as handlers see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import RLock
from typing import Any

import psycopg
from psycopg.errors import DatatypeMismatch
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import StoreUnavailable
from holdfast.sql.database import Row

MAX_CURSORS = 32
"""Maximum of statements for which a transaction keeps a cursor."""

MAX_KNOWN_STATEMENTS = 500
"""Maximum of statements that a connection remembers to have succeeded."""


class PostgresTx:
    """The transaction as handlers see it.

    `write` uses psycopg's pipeline mode. The pipeline begins with the first `write` and ends before
    anything else happens on the connection, so that every other user finds it outside of a
    pipeline.

    `succeeded` holds the statements that have succeeded on this connection. A known statement that
    finds a column of another type was prepared before the column was altered: no event is to
    blame, and a new connection prepares it anew.
    """

    def __init__(self, raw: psycopg.Connection[Row], succeeded: set[str]) -> None:
        self._raw, self._succeeded = raw, succeeded
        self.has_appended = False
        self._pipeline: AbstractContextManager[psycopg.Pipeline] | None = None
        self._written: set[str] = set()
        self._error: psycopg.Error | None = None
        self._is_stale = False
        self._cursors: dict[str, psycopg.Cursor[Row]] = {}
        # A handler may use several threads, and one thread at a time enters or leaves a pipeline.
        self._lock = RLock()

    @property
    def connection(self) -> psycopg.Connection[Row]:
        with self._lock:
            self._leave_pipeline()
            # Kept cursors would not know the adapters that a handler registers.
            self._cursors.clear()
        return self._raw

    def execute(self, sql: str, params: Any = ()) -> int:
        with self._statement(sql):
            return self._cursor(sql).execute(sql, params or None).rowcount

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        with self._statement(sql):
            self._cursor(sql).executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[Row]:
        with self._statement(sql):
            return self._raw.cursor(row_factory=tuple_row).execute(sql, params or None).fetchall()

    def write(self, sql: str, params: Any = ()) -> None:
        with self._lock:
            if self._error is not None:
                return  # `flush` raises it; the server skips all that follows an error.
            if self._pipeline is None:
                self.forget_prepared()
                pipeline = self._raw.pipeline()
                pipeline.__enter__()
                self._pipeline = pipeline
            self._written.add(str(sql))
            try:
                self._cursor(sql).execute(sql, params or None)
            except psycopg.Error as error:
                if error.sqlstate is None:
                    raise  # From the client: this statement can't be sent, or nothing can.
                self._error = error

    @property
    def is_behind(self) -> bool:
        return self._pipeline is not None

    def flush(self) -> None:
        with self._lock:
            if self._pipeline is None:
                return
            pipeline, self._pipeline = self._pipeline, None
            error, self._error = self._error, None
            written, self._written = self._written, set()
            try:
                pipeline.__exit__(None, None, None)
            except psycopg.Error as found:
                error = error or found
            if error is not None:
                self._is_stale = True
                if isinstance(error, DatatypeMismatch) and written <= self._succeeded:
                    raise _altered(error) from error
                raise error
            self._remember(written)

    def leave(self) -> None:
        """Ends the pipeline, and ignores how its statements ended."""
        with suppress(psycopg.Error, StoreUnavailable):
            self.flush()

    def forget_prepared(self) -> None:
        """Makes psycopg forget prepared statements after an error in a pipeline.

        psycopg notes a statement as prepared when it sends it, and the server skips all that
        follows an error. A rollback makes psycopg forget.
        """
        if self._is_stale and self._raw.pgconn.transaction_status == TransactionStatus.INTRANS:
            with self._raw.transaction(force_rollback=True):
                self._is_stale = False

    @contextmanager
    def _statement(self, sql: object) -> Iterator[None]:
        """Runs one statement in this block, outside of the pipeline."""
        with self._lock:
            self._leave_pipeline()
            try:
                yield
            except DatatypeMismatch as error:
                if str(sql) in self._succeeded:
                    raise _altered(error) from error
                raise
            self._remember((str(sql),))

    def _leave_pipeline(self) -> None:
        self.flush()
        self.forget_prepared()

    def _remember(self, statements: Iterable[str]) -> None:
        self._succeeded.update(statements)
        if len(self._succeeded) > MAX_KNOWN_STATEMENTS:
            self._succeeded.clear()

    def _cursor(self, sql: object) -> psycopg.Cursor[Row]:
        """The cursor of a statement. A cursor that is used again knows how to send parameters."""
        if not isinstance(sql, str):
            return self._raw.cursor()
        cursor = self._cursors.get(sql)
        if cursor is None or cursor.closed:
            if len(self._cursors) >= MAX_CURSORS:
                self._cursors.clear()
            cursor = self._cursors[sql] = self._raw.cursor()
        return cursor


def _altered(error: psycopg.Error) -> StoreUnavailable:
    return StoreUnavailable(f"a column was altered meanwhile; a new connection sees it: {error}")
