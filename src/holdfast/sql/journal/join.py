"""Joins an open transaction of the caller's: sqlite3, psycopg, SQLAlchemy or Django.

A connection is recognised by its class, so that no library is imported that the caller has not
imported. Our statements leave the connection's settings alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.errors import AppendError
from holdfast.sql.database import Database, Row, Run
from holdfast.sql.journal.join_errors import translated
from holdfast.sql.queries import pyformat, query

RunAsync = Callable[[str, Mapping[str, Any]], Awaitable[list[Row]]]

_CLASSES = {
    ("holdfast", "ScopedTx"): "tx",
    ("sqlite3", "Connection"): "sqlite3",
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "psycopg async",
    ("sqlalchemy", "Connection"): "SQLAlchemy",
    ("sqlalchemy", "Session"): "SQLAlchemy",
    ("sqlalchemy", "scoped_session"): "SQLAlchemy",
    ("sqlalchemy", "AsyncConnection"): "SQLAlchemy async",
    ("sqlalchemy", "AsyncSession"): "SQLAlchemy async",
    ("sqlalchemy", "async_scoped_session"): "SQLAlchemy async",
    ("django", "BaseDatabaseWrapper"): "Django",
    ("django", "ConnectionProxy"): "Django",
}
"""The library of a connection, by the package and the name of its class or of a base class."""

LENT_BY = "holdfast.tx"
"""Key under which a SQLAlchemy connection in a handler's transaction keeps the handler's tx."""


def joined(connection: Any, database: Database) -> Run:
    """A function that runs our named statements inside the caller's transaction."""
    match _library(connection):
        case "tx":
            return joined(connection.appends(), database)
        case "sqlite3":
            plain = _sqlite3(connection, database)
        case "psycopg":
            plain = _psycopg(connection, database)
        case "SQLAlchemy":
            plain = _sqlalchemy(connection, database)
        case "Django":
            plain = _django(connection, database)
        case "psycopg async" | "SQLAlchemy async":
            raise AppendError("this connection is asynchronous; await journal.append_async(…)")
        case _:
            raise _unknown(connection)

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        with translated(database):
            return _normal(plain(name, params))

    database.check_joinable(run)
    return run


def joined_async(connection: Any, database: Database) -> RunAsync:
    """The same for asyncio: psycopg's AsyncConnection, SQLAlchemy's AsyncConnection or -Session."""
    match _library(connection):
        case "psycopg async":
            plain = _psycopg_async(connection, database)
        case "SQLAlchemy async":
            plain = _sqlalchemy_async(connection, database)
        case _:
            blocking = joined(connection, database)

            async def plain(name: str, params: Mapping[str, Any]) -> list[Row]:
                return blocking(name, params)

    async def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        with translated(database):
            return _normal(await plain(name, params))

    return run


def _library(connection: Any) -> str | None:
    for cls in type(connection).__mro__:
        package = cls.__module__.partition(".")[0].lstrip("_")
        if found := _CLASSES.get((package, cls.__name__)):
            return found
    return None


def _sqlite3(raw: sqlite3.Connection, database: Database) -> Run:
    _expect(database, "sqlite", "sqlite3")
    _check_sqlite_transaction(raw, "execute BEGIN IMMEDIATE first")

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        cursor = raw.cursor()
        cursor.row_factory = None
        return cursor.execute(query(name, "sqlite"), dict(params)).fetchall()

    return run


def _psycopg(raw: Any, database: Database) -> Run:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _check_psycopg(raw, database)

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        # Not raw.cursor(), whose cursors may have another parameter style.
        with Cursor(raw, row_factory=tuple_row) as cursor:
            return cursor.execute(_pyformat(name, database), params).fetchall()

    return run


def _psycopg_async(raw: Any, database: Database) -> RunAsync:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    _check_psycopg(raw, database)

    async def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        async with AsyncCursor(raw, row_factory=tuple_row) as cursor:
            await cursor.execute(_pyformat(name, database), params)
            return await cursor.fetchall()

    return run


def _check_psycopg(raw: Any, database: Database) -> None:
    from psycopg.pq import TransactionStatus

    _expect(database, "postgres", "psycopg")
    if raw.autocommit and raw.info.transaction_status is TransactionStatus.IDLE:
        raise _no_transaction("use `with connection.transaction():`")


def _sqlalchemy(given: Any, database: Database) -> Run:
    from sqlalchemy import text
    from sqlalchemy.engine import Connection

    connection: Connection = given if isinstance(given, Connection) else given.connection()
    name = connection.dialect.name
    _expect(database, {"postgresql": "postgres"}.get(name, name), "SQLAlchemy")
    if not connection.in_transaction():
        connection.begin()  # As every statement would, and the caller's commit() expects.
    if (tx := (connection.connection.record_info or {}).get(LENT_BY)) is not None:
        return joined(tx, database)
    hint = "this connection is in AUTOCOMMIT; use one with another isolation level"
    if database.dialect == "sqlite":
        _check_sqlite_transaction(connection.connection.driver_connection, hint)
    elif getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise _no_transaction(hint)

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        rows = connection.execute(text(query(name, database.dialect)), dict(params)).fetchall()
        return [tuple(row) for row in rows]

    return run


def _sqlalchemy_async(connection: Any, database: Database) -> RunAsync:
    # The scoped session does not pass run_sync on in every version.
    session = connection() if type(connection).__name__ == "async_scoped_session" else connection

    async def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        def inside(plain: Any) -> list[Row]:
            return joined(plain, database)(name, params)

        rows: list[Row] = await session.run_sync(inside)
        return rows

    return run


def _django(connection: Any, database: Database) -> Run:
    vendor = getattr(connection, "vendor", None)
    if vendor is None:  # Django's caches use the same class of proxy.
        raise _unknown(connection)
    _expect(database, {"postgresql": "postgres"}.get(vendor, vendor), "Django")
    if connection.get_autocommit() and not connection.in_atomic_block:
        raise _no_transaction("use `with transaction.atomic():`")

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        with connection.cursor() as cursor:
            cursor.execute(_pyformat(name, database), dict(params))
            rows: list[Row] = cursor.fetchall()
            return rows

    return run


def _check_sqlite_transaction(raw: Any, hint: str) -> None:
    """Passes a connection that has begun, or that begins by itself before an INSERT."""
    begins = raw.isolation_level is not None and getattr(raw, "autocommit", None) is not True
    if not (raw.in_transaction or begins):
        raise _no_transaction(hint)


def _expect(database: Database, found: str, library: str) -> None:
    if database.dialect != found:
        raise AppendError(
            f"this {library} connection is on {found}, the journal on {database.dialect}; "
            "connection= joins a transaction of the journal's own database"
        )


def _unknown(connection: Any) -> AppendError:
    cls = type(connection)
    return AppendError(
        f"can't join {cls.__module__}.{cls.__qualname__}: connection= takes a connection of "
        "sqlite3, psycopg, SQLAlchemy (or its Session) or Django, or a handler's tx"
    )


def _no_transaction(hint: str) -> AppendError:
    return AppendError(f"connection= joins an open transaction, and there is none; {hint}")


def _pyformat(name: str, database: Database) -> str:
    return pyformat(query(name, database.dialect))


def _normal(rows: list[Row]) -> list[Row]:
    """Text as str, even if text_factory or client_encoding makes bytes of it."""
    return [
        tuple(bytes(v).decode() if isinstance(v, bytes | bytearray) else v for v in row)
        for row in rows
    ]
