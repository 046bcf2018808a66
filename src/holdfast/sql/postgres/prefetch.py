"""Prefetching: the server reads the next events while a runner applies the last ones.

The statement is sent at once, and its answer is received when the connection is used again. This
needs no thread and no second connection. See ADR 0025.
"""

from __future__ import annotations

import select
from collections.abc import Sequence

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.sql.database import Row
from holdfast.sql.queries import dollar, query

RECHECK_MILLISECONDS = 1_000
"""Interval at which a wait checks the connection: with TLS, data may have come unnoticed."""


class Prefetch:
    """One read ahead on one connection."""

    def __init__(self, raw: psycopg.Connection[Row], loader: psycopg.Cursor[Row]) -> None:
        """`loader` says how rows are loaded."""
        self._raw, self._transformer = raw, Transformer(loader)
        self._sql = dollar(query("read", "postgres")).encode()
        self.is_pending = False
        """Whether a read was sent whose answer is not taken."""
        self._sent: tuple[int, int] | None = None
        self._answer: tuple[int, int, Sequence[Row]] | None = None

    def send(self, after: int, limit: int) -> None:
        """Has the server read events; before any other statement, `receive` must follow."""
        self._answer = None
        pgconn = self._raw.pgconn
        with self._raw.lock:
            pgconn.send_query_params(
                self._sql, [str(after).encode(), str(limit).encode()], result_format=Format.BINARY
            )
            pgconn.flush()
        self._sent, self.is_pending = (after, limit), True

    def receive(self) -> None:
        """Waits for the answer, if there is one, and keeps it."""
        if self._sent is None:
            return
        (after, limit), self._sent = self._sent, None
        with self._raw.lock:
            result = self._received()
        if result is not None and self._raw.pgconn.status == ConnStatus.BAD:
            raise psycopg.OperationalError(result.get_error_message())
        if result is not None and result.status == ExecStatus.TUPLES_OK:
            self._transformer.set_pgresult(result)
            rows = self._transformer.load_rows(0, result.ntuples, tuple)
            self._answer = after, limit, rows

    def take(self, after: int, limit: int) -> Sequence[Row] | None:
        """The answer, once, if it is to this question and full: a short one may have grown."""
        self.receive()
        answer, self._answer, self.is_pending = self._answer, None, False
        if answer is None:
            return None
        asked_after, asked_limit, rows = answer
        is_full = len(rows) == asked_limit >= limit
        return rows[:limit] if asked_after == after and is_full else None

    def _received(self) -> PGresult | None:
        """Waits without the interpreter lock, which `get_result` would hold."""
        pgconn, last = self._raw.pgconn, None
        news = select.poll()
        news.register(pgconn.socket, select.POLLIN)
        while True:
            while pgconn.is_busy():
                news.poll(RECHECK_MILLISECONDS)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return last
            last = result
