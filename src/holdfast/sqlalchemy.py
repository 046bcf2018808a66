"""SQLAlchemy in handlers, inside the handler's transaction.

A transaction of SQLAlchemy is a savepoint in the handler's transaction: what it commits is
committed with the checkpoint, if the handler succeeds. So code that commits or rolls back works as
it does on its own connection, and can't separate the rows from the checkpoint.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import count
from typing import Any, Never, TypeVar, overload

from sqlalchemy import create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast.errors import HoldfastError
from holdfast.model.projection import Tx
from holdfast.sql.journal.join import LENT_BY

__all__ = ["connection", "session"]

S = TypeVar("S", bound=Session)

MAX_ENGINES = 16
"""Maximum number of databases for which an engine keeps its compiled statements."""

SAVEPOINT = "holdfast.savepoint"
"""Key of a connection's `record_info`: the savepoint that is its transaction."""

_lent: ContextVar[Any] = ContextVar("holdfast_lent")
_numbers = count()


@overload
def session(tx: Tx) -> AbstractContextManager[Session]: ...
@overload
def session(tx: Tx, make: Callable[..., S]) -> AbstractContextManager[S]: ...
@contextmanager
def session(tx: Tx, make: Callable[..., Any] = Session) -> Iterator[Any]:
    """A Session in the transaction of a handler, for the time of the block.

    `make` is a Session class, or a sessionmaker, whose own bind is ignored. At the end of the block
    the session is committed, or rolled back if the block raises.
    """
    with connection(tx) as lent, make(bind=lent, binds=None) as opened:
        yield opened
        opened.commit()


@contextmanager
def connection(tx: Tx) -> Iterator[Connection]:
    """A Connection in the transaction of a handler, for the time of the block.

    At the end of the block it is committed, or rolled back if the block raises.
    """
    raw = tx.connection
    token = _lent.set(raw)
    try:
        opened = _engine_for(raw).connect()
    finally:
        _lent.reset(token)
    with opened:
        _record_info(opened.connection)[LENT_BY] = tx
        yield opened
        opened.commit()


def _engine_for(raw: Any) -> Engine:
    if isinstance(raw, sqlite3.Connection):
        return _engine("sqlite+holdfast://")
    info = raw.info
    database = info.server_version, info.host, info.port, info.dbname, info.user
    # SQLAlchemy's handling of hstore would change what other code reads by this connection.
    return _engine("postgresql+holdfast://", *database, use_native_hstore=False)


@lru_cache(MAX_ENGINES)
def _engine(url: str, *_database: Any, **options: Any) -> Engine:
    return create_engine(
        url, creator=_lend, poolclass=NullPool, pool_reset_on_return=None, **options
    )


def _lend() -> Any:
    raw = _lent.get(None)
    if raw is None:  # The connection was lost, and SQLAlchemy wants another one.
        raise HoldfastError("the connection of the handler was lost")
    return raw


class _InHandler:
    """Makes a dialect work on a handler's connection, with savepoints for transactions."""

    driver = "holdfast"
    supports_statement_cache = True

    def on_connect(self) -> Any:
        """Nothing: holdfast has set up the connection."""

    def do_begin(self, dbapi_connection: Any) -> None:
        name = f"holdfast_{next(_numbers)}"
        _run(dbapi_connection, f"SAVEPOINT {name}")
        _record_info(dbapi_connection)[SAVEPOINT] = name

    def do_commit(self, dbapi_connection: Any) -> None:
        name = _record_info(dbapi_connection)[SAVEPOINT]
        _run(dbapi_connection, f"RELEASE SAVEPOINT {name}")
        del _record_info(dbapi_connection)[SAVEPOINT]

    def do_rollback(self, dbapi_connection: Any) -> None:
        name = _record_info(dbapi_connection).pop(SAVEPOINT, None)
        if name is not None:  # At its first connect, SQLAlchemy rolls back without a begin.
            _run(dbapi_connection, f"ROLLBACK TO SAVEPOINT {name}")
            _run(dbapi_connection, f"RELEASE SAVEPOINT {name}")

    def do_close(self, dbapi_connection: Any) -> None:
        """Nothing: the connection belongs to the runner."""

    def set_isolation_level(self, _: Any, level: str) -> Never:
        raise HoldfastError(f"{level}: the transaction is the handler's, and has begun")


class SqliteInHandler(_InHandler, SQLiteDialect_pysqlite):
    """SQLite, inside a handler's transaction."""

    supports_statement_cache = True


class PostgresInHandler(_InHandler, PGDialect_psycopg):
    """PostgreSQL, inside a handler's transaction."""

    supports_statement_cache = True


def _run(dbapi_connection: Any, sql: str) -> None:
    cursor = dbapi_connection.cursor()
    try:
        cursor.execute(sql)
    finally:
        cursor.close()


def _record_info(dbapi_connection: Any) -> dict[str, Any]:
    """What SQLAlchemy keeps with a connection for as long as it has it."""
    info: dict[str, Any] = dbapi_connection.record_info
    return info


registry.register("sqlite.holdfast", __name__, SqliteInHandler.__name__)
registry.register("postgresql.holdfast", __name__, PostgresInHandler.__name__)
