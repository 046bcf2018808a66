"""Connection poolers such as PgBouncer: noticed, and refused if they don't keep sessions.

Leases, wake-ups, settings and prepared statements belong to a session of the server. A pooler in
transaction mode gives every transaction to another session, where others find what was left.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

from holdfast.errors import ConfigError

PROBES = 3
"""Maximum of probes for a mode. One is enough, unless others use the pool at the same moment."""

PROBE_SECONDS = 2.0
"""Timeout of a probe. In session mode, a small pool has no second connection."""

ADVICE = (
    "holdfast's leases, wake-ups and settings belong to a session: connect to the server itself, "
    "or to a pool in session mode (pool_mode = session). Connections that you pass as connection= "
    "may come from any pool"
)

_BEGIN = b"BEGIN; SELECT pg_catalog.pg_backend_pid()"

Raw = psycopg.Connection[Any]


def is_pooled(raw: Raw) -> bool:
    """Whether a pooler is between: the process it names is not the one that answers."""
    return backend_pid(raw) != raw.info.backend_pid


def check_mode(raw: Raw, connect: Callable[[], Raw], *, url: object) -> None:
    """Raises ConfigError if the pooler gives one connection several sessions, or one to several."""
    if not _keeps_sessions(raw, connect):
        raise ConfigError(f"{url} is a connection pooler in transaction mode; {ADVICE}")


def _keeps_sessions(raw: Raw, connect: Callable[[], Raw]) -> bool:
    """Changes nothing, and leaves nothing behind, whatever the mode is."""
    ours = backend_pid(raw)
    for _ in range(PROBES):
        try:
            with closing(connect()) as other:
                theirs = _held_backend(other)
                # While the other connection is inside a transaction, nobody can be given its
                # session.
                if theirs == ours or backend_pid(raw) != ours:
                    return False
        except psycopg.errors.ProtocolViolation:
            return False  # In statement mode, there are no transactions.
        except (psycopg.OperationalError, TimeoutError):
            return True  # There is no second connection, so this one is ours alone.
    return True


def backend_pid(raw: Raw) -> int:
    """The server's process that answers."""
    row = raw.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def _held_backend(raw: Raw) -> int:
    """Begins a transaction; returns the server's process that it is in."""
    pgconn, until = raw.pgconn, time.monotonic() + PROBE_SECONDS
    pgconn.send_query(_BEGIN)
    news = select.poll()
    news.register(pgconn.socket, select.POLLIN)
    found: bytes | None = None
    while True:
        while pgconn.is_busy():
            if not news.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            break
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        if result.ntuples:
            found = result.get_value(0, 0)
    assert found is not None
    return int(found)
