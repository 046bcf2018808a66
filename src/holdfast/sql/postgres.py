"""PostgreSQL, through psycopg 3 with binary parameters.

A runner has one connection. Appends and quick reads share a pool. One more connection a process
holds all its leases and listens for wake-ups (`postgres_leases.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import msgspec

from holdfast.core.errors import ConfigError, HoldfastError, StoreConflict, StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.ports import Checkpoint, Chunk, Lease, RowChange
from holdfast.core.signals import Bell
from holdfast.core.table import POSITION_COLUMN, Column, Key, TableSpec
from holdfast.sql import forks
from holdfast.sql.database import Row, causes, quote, transaction_ended
from holdfast.sql.queries import pyformat, query
from holdfast.sql.settled import settled_rows
from holdfast.sql.url import PostgresUrl

try:
    import psycopg
    from psycopg.pq import TransactionStatus

    from holdfast.sql.postgres_leases import Keeper, Notifier
    from holdfast.sql.postgres_pool import Pool
except ImportError as missing:  # pragma: no cover
    raise ConfigError("PostgreSQL needs psycopg: pip install 'holdfast[postgres]'") from missing

POOL_CONNECTIONS = 10
CONNECT_SECONDS = 10
CONNECT_ATTEMPTS = 100
"""A connection that is made while the process forks is made again."""

MIGRATION_LOCK = 0x48464D49
"""Advisory lock key: one migration at a time in a database."""

CANCEL_SECONDS = 5.0
"""How long a request to cancel a statement may take."""

OLDEST_SERVER = 140_000

_CONNECTION_DEFAULTS = {
    "connect_timeout": str(CONNECT_SECONDS),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "application_name": "holdfast",
}

# Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html
_CONFLICTS = {"40001", "40P01", "55P03"}
_JOURNAL_CONSTRAINTS = {"holdfast_event_id", "holdfast_event_stream_version"}
_REFUSED = ("21", "22", "23", "27", "44", "54", "P0")
_AWAY = ("08", "25006", "25P03", "25P04", "53", "57P", "58", "F0", "XX")


class PostgresDatabase:
    """A PostgreSQL database."""

    dialect = "postgres"

    def __init__(self, url: PostgresUrl) -> None:
        self.bell = Bell()
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
            **{**_CONNECTION_DEFAULTS, **{k: str(v) for k, v in given.items()}}
        )
        self._opened: WeakSet[psycopg.Connection[Row]] = WeakSet()
        self._pool = Pool(
            self.connect_raw, max_connections=POOL_CONNECTIONS, wait_seconds=CONNECT_SECONDS
        )
        self._keeper = Keeper(self.connect_raw, self.bell)
        self._notifier = Notifier(self.connect_raw)
        forks.at_fork(self, PostgresDatabase.forked)

    def connect(self) -> PostgresConnection:
        return PostgresConnection(self, self.connect_raw())

    @contextmanager
    def reading(self) -> Iterator[PostgresConnection]:
        with self._pooled() as raw:
            yield PostgresConnection(self, raw)

    appending = reading

    @contextmanager
    def writing(self) -> Iterator[PostgresConnection]:
        with self.reading() as connection, connection.transaction():
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[PostgresConnection]:
        connection = self.connect()
        try:
            with connection.transaction():
                connection.raw.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                yield connection
        finally:
            connection.close()

    def settled(self, connection: PostgresConnection, after: int, limit: int) -> Chunk:
        rows, held = settled_rows(
            after,
            read=lambda: connection.run("read", {"after": after, "limit": limit}),
            drawn=lambda: int(connection.run("last_drawn")[0][0]),
            bound=lambda: connection.run("in_flight")[0][0],
        )
        return Chunk(self.raw_events(rows), held)

    def settled_end(self, connection: PostgresConnection) -> int:
        drawn = int(connection.run("last_drawn")[0][0])
        bound = connection.run("in_flight")[0][0]
        return drawn if bound is None else min(drawn, bound)

    def raw_events(self, rows: Iterable[Row]) -> list[RawEvent]:
        return [RawEvent(*row) for row in rows]

    def listen(self) -> None:
        self._keeper.listen()

    def announce(self) -> None:
        self.bell.ring()
        self._notifier.kick()

    def lease(self, checkpoint: Checkpoint) -> Lease | None:
        return self._keeper.acquire(checkpoint.id)

    def leased(self, checkpoint_ids: Iterable[int]) -> set[int]:
        with self.reading() as connection:
            return {row[0] for row in connection.run("lease_holders")} & set(checkpoint_ids)

    def depose(self, checkpoint_id: int) -> None:
        # The runner's own connection too: frozen inside a transaction, it holds the checkpoint.
        with self.reading() as connection:
            connection.run("end_leader", {"id": checkpoint_id})

    def column_ddl(self, column: Column, *, with_default: bool) -> str:
        null = "" if column.optional else " NOT NULL"
        default = ""
        if with_default and column.default is not None:
            literal = psycopg.sql.Literal(column.check(column.default)).as_string()
            default = f" DEFAULT {literal}"
        return f"{quote(column.name)} {_TYPES[column.kind]}{null}{default}"

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

    def refused(self, error: BaseException) -> bool:
        if not isinstance(error, psycopg.Error):
            return False
        if error.sqlstate is None:
            return isinstance(error, psycopg.DataError)  # The client could not even send it.
        return error.sqlstate.startswith(_REFUSED)

    def close(self) -> None:
        self._notifier.close()
        self._keeper.close()
        self._pool.close()

    def forked(self) -> None:
        _abandon(list(self._opened))
        self._opened = WeakSet()
        self.bell.renew()
        self._pool.forked()
        self._keeper.forked()
        self._notifier.forked()

    def connect_raw(self) -> psycopg.Connection[Row]:
        """A new connection in autocommit mode: transactions are always spelt out."""
        for _ in range(CONNECT_ATTEMPTS):
            before = forks.count()
            raw = self._connect_once()
            self._opened.add(raw)
            if forks.count() == before:
                return raw
            # A child that was forked meanwhile has the socket, and does not know that it has.
            raw.close()
        raise StoreUnavailable(f"this process forks faster than it can connect to {self.url}")

    def _connect_once(self) -> psycopg.Connection[Row]:
        try:
            raw = psycopg.connect(self._conninfo, autocommit=True)
            try:
                _configure(raw)
            except BaseException:
                raw.close()
                raise
        except psycopg.Error as error:
            raise self._unavailable(error) or error from None
        return raw

    def _unavailable(self, error: psycopg.Error) -> StoreUnavailable | None:
        state = error.sqlstate
        message = f"{self.url}: {self.url.hide(str(error).strip())}"
        if state in _CONFLICTS:
            return StoreConflict(message)
        if state == "23505" and error.diag.constraint_name in _JOURNAL_CONSTRAINTS:
            return StoreConflict(
                f"another transaction has appended the same; append again: {message}"
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

    @contextmanager
    def _pooled(self) -> Iterator[psycopg.Connection[Row]]:
        try:
            with self._pool.connection() as raw:
                yield raw
        except HoldfastError:
            raise
        except psycopg.Error as error:
            raise self.unavailable(error) or error from error


class PostgresConnection:
    """One psycopg connection in autocommit mode."""

    def __init__(self, database: PostgresDatabase, raw: psycopg.Connection[Row]) -> None:
        self._database, self.raw = database, raw

    @property
    def tx(self) -> PostgresTx:
        return PostgresTx(self.raw)

    def run(self, name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
        with self._translated():
            cursor = self.raw.execute(
                pyformat(query(name, "postgres")),
                params or {},
                binary=True,
            )
            return cursor.fetchall() if cursor.description else []

    def run_many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        with self._translated(), self.raw.cursor() as cursor:
            cursor.executemany(pyformat(query(name, "postgres")), params)

    def script(self, sql: str) -> None:
        with self._translated():
            self.raw.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._translated(), self.raw.transaction():
            yield

    @contextmanager
    def handling(self) -> Iterator[PostgresTx]:
        # Lives as long as the transaction, so that another one in its place is noticed.
        mark = str(uuid4())
        with self._translated():
            self.raw.execute("SELECT set_config('holdfast.handling', %s, true)", (mark,))
        yield self.tx
        self.check_intact()
        with self._translated():
            row = self.raw.execute("SELECT current_setting('holdfast.handling', true)").fetchone()
        if row != (mark,):
            raise transaction_ended()

    def savepoint(self, *, renewed: bool) -> None:
        release = "RELEASE SAVEPOINT holdfast_event; " if renewed else ""
        with self._translated():
            self.raw.execute(f"{release}SAVEPOINT holdfast_event")

    def undo(self) -> None:
        with self._translated():
            try:
                self.raw.execute("ROLLBACK TO SAVEPOINT holdfast_event")
            except (
                psycopg.errors.InvalidSavepointSpecification,
                psycopg.errors.NoActiveSqlTransaction,
            ):
                raise transaction_ended() from None

    def interrupt(self) -> None:
        with suppress(psycopg.Error):
            self.raw.cancel_safe(timeout=CANCEL_SECONDS)

    def check_intact(self) -> None:
        # COMMIT would answer ROLLBACK without an error if a statement has failed and the error
        # was swallowed, and do nothing at all if the transaction has been ended.
        match self.raw.info.transaction_status:
            case TransactionStatus.INTRANS:
                return
            case TransactionStatus.INERROR:
                raise HoldfastError(
                    "a statement failed inside the handler and its error was swallowed; PostgreSQL "
                    "can't go on in this transaction. Let the error pass, or use a savepoint"
                )
            case TransactionStatus.UNKNOWN:
                raise StoreUnavailable("the connection was lost", connection_lost=True)
            case _:
                raise transaction_ended()

    def load_rows(self, table: TableSpec, keys: Sequence[Key]) -> dict[Key, tuple[Row, int]]:
        columns = ", ".join(f"t.{_name(c.name)}" for c in table.columns)
        parts = [table.columns[i] for i in table.key_indexes]
        sql = (
            f'SELECT {columns}, t."{POSITION_COLUMN}" FROM {_name(table.name)} AS t '
            f"JOIN unnest({', '.join(map(_array, parts))}) "
            f"AS k ({', '.join(map(_name, table.key))}) "
            f"ON {' AND '.join(f't.{_name(n)} = k.{_name(n)}' for n in table.key)}"
        )
        json_at = [i for i, column in enumerate(table.columns) if column.kind == "JSON"]
        found: dict[Key, tuple[Row, int]] = {}
        with self._translated():
            columns_of_keys = [list(part) for part in zip(*keys, strict=True)]
            for *stored, position in self.raw.execute(sql, columns_of_keys, binary=True):
                for i in json_at:
                    if stored[i] is not None:
                        stored[i] = _typed(stored[i], table.columns[i])
                found[tuple(stored[i] for i in table.key_indexes)] = tuple(stored), position
        return found

    def write_rows(self, table: TableSpec, rows: Sequence[RowChange]) -> int:
        names = [*(column.name for column in table.columns), POSITION_COLUMN]
        rest = [name for name in names if name not in table.key]
        arrays = [*map(_array, table.columns), "%b::bigint[]"]
        sql = (
            f"INSERT INTO {_name(table.name)} AS t ({', '.join(map(_name, names))}) "
            f"SELECT * FROM unnest({', '.join(arrays)}) "
            f"ON CONFLICT ({', '.join(map(_name, table.key))}) DO UPDATE SET "
            + ", ".join(f"{_name(name)} = excluded.{_name(name)}" for name in rest)
            + f' WHERE t."{POSITION_COLUMN}" <= excluded."{POSITION_COLUMN}"'
        )
        values = [list(column) for column in zip(*(row.values for row in rows), strict=True)]
        with self._translated():
            return self.raw.execute(sql, [*values, [row.position for row in rows]]).rowcount

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None:
        parts = [table.columns[i] for i in table.key_indexes]
        names = ", ".join(map(_name, table.key))
        sql = (
            f"DELETE FROM {_name(table.name)} WHERE ({names}) IN "
            f"(SELECT * FROM unnest({', '.join(map(_array, parts))}))"
        )
        with self._translated():
            self.raw.execute(sql, [list(part) for part in zip(*keys, strict=True)])

    @property
    def is_lost(self) -> bool:
        return self.raw.closed

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.raw.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except HoldfastError:
            raise
        except psycopg.Error as error:
            raise self._database.unavailable(error) or error from error


class PostgresTx:
    """The transaction as handlers see it."""

    def __init__(self, raw: psycopg.Connection[Row]) -> None:
        self.connection = raw
        self.has_appended = False
        self.callbacks: list[Callable[[], Any]] = []

    def execute(self, sql: str, params: Any = ()) -> int:
        return self.connection.execute(sql, params or None).rowcount

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[Row]:
        return self.connection.execute(sql, params or None).fetchall()

    def after_commit(self, callback: Callable[[], Any]) -> None:
        self.callbacks.append(callback)


_TYPES = {
    "str": "text",
    "int": "bigint",
    "float": "double precision",
    "bool": "boolean",
    "Decimal": "numeric",
    "date": "date",
    "datetime": "timestamptz",
    "UUID": "uuid",
    "bytes": "bytea",
    "JSON": "jsonb",
}


def _name(name: str) -> str:
    """An identifier, quoted for a statement with parameters."""
    return quote(name).replace("%", "%%")


def _typed(value: Any, column: Column) -> Any:
    """A JSON value as the row type declares it; its keys may be more than text."""
    return msgspec.convert(value, column.annotation, str_keys=True)


def _array(column: Column) -> str:
    """A parameter that takes a list of the column's values."""
    if column.kind == "JSON":
        return "%b::text[]::jsonb[]"
    return f"%b::{_TYPES[column.kind]}[]"


_graveyard: list[psycopg.Connection[Row]] = []
"""Connections of a parent process, kept so that nothing is said over them in this one."""


def _abandon(inherited: Sequence[psycopg.Connection[Row]]) -> None:
    """In the child of a fork: lets go of the parent's sockets, so that they end with the parent.

    Something else takes the place of each descriptor: the driver still knows its number.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for raw in inherited:
        _graveyard.append(raw)
        if not raw.closed:
            with suppress(psycopg.Error, OSError):
                os.dup2(nothing, raw.fileno(), inheritable=False)
    os.close(nothing)


def _configure(raw: psycopg.Connection[Row]) -> None:
    if raw.info.server_version < OLDEST_SERVER:
        raise ConfigError(
            f"PostgreSQL {raw.info.server_version // 10_000} is too old; "
            f"{OLDEST_SERVER // 10_000} or later is needed"
        )
    # Datetimes come back as UTC on every database. The append function needs a fresh snapshot for
    # each of its statements, whatever the database's default is.
    # Time limits of the role are for its other work: a batch that they cut looks like a bad event.
    raw.execute(
        "SET TIME ZONE 'UTC'; SET default_transaction_isolation = 'read committed';"
        "SET statement_timeout = 0; SET lock_timeout = 0;"
        "SET idle_in_transaction_session_timeout = 0"
    )
    # A killed worker's statement would run on, with its rows locked against the next worker. Not
    # every platform's server can look after its clients.
    with suppress(psycopg.errors.InvalidParameterValue):
        raw.execute("SET client_connection_check_interval = '1s'")
