"""Joins an open transaction of the caller's: sqlite3, psycopg, SQLAlchemy or Django.

Nothing is imported that the caller has not imported: a connection tells by its class what it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.core.errors import AppendError
from holdfast.sql.database import Row
from holdfast.sql.queries import pyformat, query

Run = Callable[[str, Mapping[str, Any]], list[Row]]
RunAsync = Callable[[str, Mapping[str, Any]], Awaitable[list[Row]]]


def joined(connection: Any, dialect: str) -> Run:
    """A function that runs our named statements inside the caller's transaction."""
    match _library(connection):
        case "holdfast":
            return joined(connection.connection, dialect)
        case "sqlite3":
            _expect(dialect, "sqlite", "sqlite3")
            return _sqlite3(connection)
        case "psycopg" if not _is_async(connection):
            _expect(dialect, "postgres", "psycopg")
            return _psycopg(connection)
        case "sqlalchemy" if not _is_async(connection):
            return _sqlalchemy(connection, dialect)
        case "django":
            return _django(connection, dialect)
        case "psycopg" | "sqlalchemy":
            raise AppendError("this connection is asynchronous; await journal.append_async(…)")
    raise AppendError(
        f"can't join {type(connection).__module__}.{type(connection).__qualname__}: connection= "
        "takes a connection of sqlite3, psycopg, SQLAlchemy (or its Session) or Django, or a "
        "handler's tx"
    )


def joined_async(connection: Any, dialect: str) -> RunAsync:
    """The same for asyncio: psycopg's AsyncConnection, SQLAlchemy's AsyncConnection or -Session."""
    if _is_async(connection):
        if _library(connection) == "psycopg":
            _expect(dialect, "postgres", "psycopg")
            return _psycopg_async(connection)
        if _library(connection) == "sqlalchemy":
            return _sqlalchemy_async(connection, dialect)
    run = joined(connection, dialect)

    async def run_now(name: str, params: Mapping[str, Any]) -> list[Row]:
        return run(name, params)

    return run_now


def _library(connection: Any) -> str:
    roots = [cls.__module__.partition(".")[0] for cls in type(connection).__mro__]
    if "_sqlite3" in roots:
        return "sqlite3"
    known = ("holdfast", "sqlite3", "psycopg", "sqlalchemy", "django")
    # Django hands out a proxy that forwards attributes to the connection of this thread.
    return next((root for root in roots if root in known), "")


def _is_async(connection: Any) -> bool:
    return any(cls.__name__.startswith("Async") for cls in type(connection).__mro__)


def _expect(dialect: str, wanted: str, library: str) -> None:
    if dialect != wanted:
        raise AppendError(
            f"a {library} connection can't join: the journal is on {dialect}, "
            "and one transaction can't span two databases"
        )


def _no_transaction(hint: str) -> AppendError:
    return AppendError(f"connection= joins an open transaction, and there is none; {hint}")


def _sqlite3(raw: sqlite3.Connection) -> Run:
    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        if not raw.in_transaction:
            if raw.isolation_level is None:
                raise _no_transaction("execute BEGIN IMMEDIATE first")
            raw.execute("BEGIN IMMEDIATE")  # As the library does by itself before an INSERT.
        cursor = raw.cursor()
        cursor.row_factory = None
        return cursor.execute(query(name, "sqlite"), dict(params)).fetchall()

    return run


def _psycopg_cursor(raw: Any) -> Any:
    import psycopg
    from psycopg.rows import tuple_row

    if raw.autocommit and raw.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
        raise _no_transaction("use `with connection.transaction():`")
    return raw.cursor(row_factory=tuple_row)


def _psycopg(raw: Any) -> Run:
    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        with _psycopg_cursor(raw) as cursor:
            rows: list[Row] = cursor.execute(pyformat(query(name, "postgres")), params).fetchall()
            return rows

    return run


def _psycopg_async(raw: Any) -> RunAsync:
    async def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        async with _psycopg_cursor(raw) as cursor:
            await cursor.execute(pyformat(query(name, "postgres")), params)
            rows: list[Row] = await cursor.fetchall()
            return rows

    return run


def _sqlalchemy(connection: Any, dialect: str) -> Run:
    from sqlalchemy import text

    used = {"postgresql": "postgres"}.get(connection_dialect(connection), "")
    _expect(dialect, used or connection_dialect(connection), "SQLAlchemy")

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        rows = connection.execute(text(query(name, dialect)), dict(params)).fetchall()
        return [tuple(row) for row in rows]

    return run


def connection_dialect(connection: Any) -> str:
    """SQLAlchemy's name of the database behind a Connection or a Session."""
    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return str(bind.dialect.name)


def _sqlalchemy_async(connection: Any, dialect: str) -> RunAsync:
    async def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        def inside(plain: Any) -> list[Row]:
            return _sqlalchemy(plain, dialect)(name, params)

        rows: list[Row] = await connection.run_sync(inside)
        return rows

    return run


def _django(connection: Any, dialect: str) -> Run:
    _expect(dialect, {"postgresql": "postgres"}.get(connection.vendor, connection.vendor), "Django")

    def run(name: str, params: Mapping[str, Any]) -> list[Row]:
        if connection.get_autocommit() and not connection.in_atomic_block:
            raise _no_transaction("use `with transaction.atomic():`")
        with connection.cursor() as cursor:
            cursor.execute(pyformat(query(name, dialect)), dict(params))
            rows: list[Row] = cursor.fetchall()
            return rows

    return run
