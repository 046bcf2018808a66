"""PostgreSQL, through psycopg 3 with binary parameters.

A runner has one connection while it has work. Appends and quick reads share a pool. One more
connection per process holds all its leases and listens for wake-ups (leases.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any
from weakref import WeakSet

from holdfast.errors import ConfigError, HoldfastError, StoreConflict, StoreUnavailable
from holdfast.model.rows.row_type import Column
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.wake import WakeSignal
from holdfast.sql import forks
from holdfast.sql.database import Row, Run, causes, quote, translating
from holdfast.sql.postgres.column_types import TYPES
from holdfast.sql.postgres.range_dialect import RANGE_DIALECT
from holdfast.sql.url import PostgresUrl

try:
    import psycopg

    from holdfast.sql.postgres.array_packing import Packed, PackedDumper
    from holdfast.sql.postgres.connection import PostgresConnection
    from holdfast.sql.postgres.leases import LeaseConnection
    from holdfast.sql.postgres.notify import Notifier
    from holdfast.sql.postgres.pool import Pool
    from holdfast.sql.postgres.pooler import ADVICE, check_mode, is_pooled
    from holdfast.sql.postgres.privileges import missing_right
    from holdfast.sql.postgres.timeouts import configure, unlimited
    from holdfast.sql.postgres.waits import stream_holder, waits_of, was_cancelled
except ImportError as missing:  # pragma: no cover
    raise ConfigError("PostgreSQL needs psycopg: pip install 'holdfast[postgres]'") from missing

POOL_CONNECTIONS = 10
"""Maximum of connections in the pool."""

CONNECT_SECONDS = 10
"""Timeout of connecting, and of waiting for a connection of the pool."""

CONNECT_ATTEMPTS = 100
"""Maximum of attempts to connect while the process forks."""

MIGRATION_LOCK = 0x48464D49
"""Advisory lock key: one migration at a time in a database."""

_CONNECTION_DEFAULTS = {
    "connect_timeout": str(CONNECT_SECONDS),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "application_name": "holdfast",
}

# Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html
_CONFLICTS = {"40001", "40P01", "55P03"}
_PREPARED = {"26000", "42P05"}
_JOURNAL_CONSTRAINTS = {"holdfast_event_id", "holdfast_event_stream_version"}
_REFUSED = ("21", "22", "23", "27", "44", "54", "P0")
_AWAY = ("08", "25006", "25P03", "25P04", "53", "57P", "58", "F0", "XX")


class PostgresDatabase:
    """A PostgreSQL database."""

    dialect = "postgres"
    range_dialect = RANGE_DIALECT
    table_options = ""

    def __init__(self, url: PostgresUrl) -> None:
        self.url = url
        try:
            given = psycopg.conninfo.conninfo_to_dict(url.uri)
        except psycopg.Error as error:
            raise ConfigError(
                f"can't read the database URL {url}: {url.hide(str(error))}"
            ) from None
        except UnicodeDecodeError:
            raise ConfigError(
                f"can't read the database URL {url}: what is written with % is not UTF-8"
            ) from None
        self._conninfo = psycopg.conninfo.make_conninfo(
            **{
                **_CONNECTION_DEFAULTS,
                **{k: str(v) for k, v in given.items()},
                "client_encoding": "UTF8",  # array_packing encodes texts as UTF-8.
            }
        )
        self._role = None if given.get("user") is None else str(given["user"])
        self._has_sessions = False
        """Whether a pooler is between that keeps sessions."""
        self._begin_process()
        forks.at_fork(self, PostgresDatabase._forked)

    def _begin_process(self) -> None:
        """Makes what belongs to one process: threads, locks and connections."""
        self.wake = WakeSignal()
        self._opened: WeakSet[psycopg.Connection[Row]] = WeakSet()
        self._pool = Pool(
            lambda: self.connect_raw(is_limited=True),
            max_connections=POOL_CONNECTIONS,
            wait_seconds=CONNECT_SECONDS,
            describe=self._describe_waits,
        )
        self._notifier = Notifier(self.connect_raw)
        self._lease_connection = LeaseConnection(
            self.connect_raw, self.wake, self._notifier, self.url.hide
        )

    def _forked(self) -> None:
        """In the child of a fork: leaves to the parent what is the parent's."""
        _abandon(list(self._opened))
        self._lease_connection.abandon()
        self._begin_process()

    @property
    def exists(self) -> bool:
        return True  # The server says what is missing.

    def connect(self) -> PostgresConnection:
        return PostgresConnection(self, self.connect_raw())

    @contextmanager
    def reading(self) -> Iterator[PostgresConnection]:
        with self._pooled() as raw:
            yield PostgresConnection(self, raw)

    @contextmanager
    def appending(self, lane: str) -> Iterator[PostgresConnection]:
        began = time.monotonic()
        with self.reading() as connection:
            try:
                yield connection
            except StoreUnavailable as error:
                # Nobody else waits as long again: a StoreConflict would be tried once more.
                holder = stream_holder(connection, lane) if was_cancelled(error) else None
                if holder is None:
                    raise
                waited = time.monotonic() - began
                raise StoreUnavailable(
                    f"nothing was appended to {lane!r}: it has waited {waited:.0f} s for {holder}"
                ) from error.__cause__

    @contextmanager
    def writing(self) -> Iterator[PostgresConnection]:
        with self.reading() as connection, connection.transaction():
            yield connection

    @contextmanager
    def changing(self, lock_seconds: float) -> Iterator[PostgresConnection]:
        with self.writing() as connection:
            lifted = unlimited(connection.raw, "LOCAL", lock_seconds=lock_seconds)
            connection.raw.execute(lifted, prepare=False)
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[PostgresConnection]:
        connection = self.connect()
        try:
            with connection.transaction():
                connection.raw.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK}::bigint)")
                yield connection
        finally:
            connection.close()

    def plain(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return params

    def listen(self) -> None:
        self._lease_connection.listen()

    def announce(self) -> None:
        self.wake.notify()
        self._notifier.kick()

    def lease(self, checkpoint: Checkpoint) -> Lease | None:
        return self._lease_connection.acquire(checkpoint.id)

    def leased(self, checkpoint_ids: Iterable[int]) -> set[int]:
        with self.reading() as connection:
            return {row[0] for row in connection.run("lease_holders")} & set(checkpoint_ids)

    def depose(self, checkpoint_id: int) -> None:
        # The runner's own connection too: frozen inside a transaction, it holds the checkpoint.
        with self.reading() as connection:
            connection.run("terminate_leader", {"id": checkpoint_id})

    def cut_off(self, checkpoint_id: int) -> None:
        with self.reading() as connection:
            connection.run("terminate_runner", {"id": checkpoint_id})

    def check_joinable(self, run: Run) -> None:
        """Nothing to check: on another database our statements find no journal, and fail."""

    def column_ddl(self, column: Column, *, with_default: bool) -> str:
        null = "" if column.optional else " NOT NULL"
        default = ""
        if with_default and column.default is not None:
            literal = psycopg.sql.Literal(column.check(column.default)).as_string()
            default = f" DEFAULT {literal}"
        return f"{quote(column.name)} {TYPES[column.kind]}{null}{default}"

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        for cause in causes(error):
            if isinstance(cause, StoreUnavailable):
                return cause
            if isinstance(cause, psycopg.Error):
                return self._unavailable(cause)
            # A handler's own library: asyncpg says sqlstate, psycopg2 says pgcode.
            state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
            if isinstance(state, str) and (state in _CONFLICTS or state.startswith(_AWAY)):
                kind = StoreConflict if state in _CONFLICTS else StoreUnavailable
                return kind(f"{self.url}: {self.url.hide(str(cause))}")
        return None

    def own_failure(self, error: psycopg.Error) -> HoldfastError | None:
        """As `unavailable`, for a statement of our own: no event is to blame if it is cancelled."""
        if isinstance(error, psycopg.errors.QueryCanceled):
            # By an operator, or by a timeout.
            message = self.url.hide(str(error).strip())
            return StoreUnavailable(f"{self.url}: a statement was cancelled: {message}")
        denied = psycopg.errors.InsufficientPrivilege | psycopg.errors.InvalidSchemaName
        if isinstance(error, denied):
            return missing_right(error, self._role)
        return self.unavailable(error)

    def refused(self, error: BaseException) -> bool:
        if not isinstance(error, psycopg.Error):
            return isinstance(error, UnicodeEncodeError)  # As below.
        if error.sqlstate is None:
            return isinstance(error, psycopg.DataError)  # The client could not send it.
        return error.sqlstate.startswith(_REFUSED)

    def close(self) -> None:
        self._notifier.close()
        self._lease_connection.close()
        self._pool.close()

    def connect_raw(self, *, is_limited: bool = False) -> psycopg.Connection[Row]:
        """A new connection in autocommit mode: transactions are always explicit.

        `is_limited`: with the limits that the role has, as appends and reads need them.
        """
        for _ in range(CONNECT_ATTEMPTS):
            before = forks.count()
            raw = self._connect_once(is_limited=is_limited)
            self._opened.add(raw)
            if forks.count() == before:
                return raw
            # A child that was forked meanwhile has inherited the socket without knowing it.
            raw.close()
        raise StoreUnavailable(f"this process forks faster than it can connect to {self.url}")

    def _connect_once(self, *, is_limited: bool) -> psycopg.Connection[Row]:
        try:
            raw = self._connect_plainly()
            try:
                self._check_pooler(raw)
                configure(raw, is_limited=is_limited)
                raw.adapters.register_dumper(Packed, PackedDumper)
            except BaseException:
                raw.close()
                raise
        except psycopg.Error as error:
            raise self.own_failure(error) or error from None
        return raw

    def _connect_plainly(self) -> psycopg.Connection[Row]:
        return psycopg.connect(self._conninfo, autocommit=True)

    def _check_pooler(self, raw: psycopg.Connection[Row]) -> None:
        """Before anything is set, which a pooler might give to others."""
        if is_pooled(raw) and not self._has_sessions:
            check_mode(raw, self._connect_plainly, url=self.url)
            self._has_sessions = True

    def _unavailable(self, error: psycopg.Error) -> StoreUnavailable | None:
        state = error.sqlstate
        message = f"{self.url}: {self.url.hide(str(error).strip())}"
        if state in _CONFLICTS:
            return StoreConflict(message)
        if state == "23505" and error.diag.constraint_name in _JOURNAL_CONSTRAINTS:
            return StoreConflict(
                f"another transaction has appended the same; append again: {message}"
            )
        if state == "23505" and error.diag.constraint_name == "holdfast_event_pkey":
            return StoreUnavailable(
                "the sequence of positions is behind the journal, as after a logical replication; "
                "stop all that appends, then run SELECT setval(pg_get_serial_sequence("
                f"'holdfast_event', 'position'), max(position)) FROM holdfast_event: {message}"
            )
        if state == "0A000" and error.diag.source_function == "RevalidateCachedQuery":
            return StoreUnavailable(
                f"a table was altered meanwhile; a new connection sees it: {message}"
            )
        if state in _PREPARED:
            return StoreUnavailable(
                "the session has other prepared statements than this connection has made in it; a "
                f"new connection begins anew. If it happens again, a pooler is between: {ADVICE}. "
                f"{message}"
            )
        if state is not None:
            lost = state.startswith(("08", "25P", "57P"))
            return (
                StoreUnavailable(message, connection_lost=lost) if state.startswith(_AWAY) else None
            )
        # Without a code it comes from the client: the connection is gone, or was never made.
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreUnavailable(message, connection_lost=True)
        return None

    def _describe_waits(self, backend_pids: Sequence[int]) -> str:
        with suppress(psycopg.Error, HoldfastError), closing(self.connect()) as connection:
            return waits_of(connection, backend_pids)
        return ""

    @contextmanager
    def _pooled(self) -> Iterator[psycopg.Connection[Row]]:
        with translating(psycopg.Error, self.own_failure), self._pool.connection() as raw:
            yield raw


def _abandon(inherited: Sequence[psycopg.Connection[Row]]) -> None:
    """In the child of a fork: releases the parent's sockets, so that they end with the parent.

    Each descriptor now refers to /dev/null, since the driver still knows its number.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for raw in inherited:
        forks.graveyard.append(raw)
        if not raw.closed:
            with suppress(psycopg.Error, OSError):
                os.dup2(nothing, raw.fileno(), inheritable=False)
    os.close(nothing)
