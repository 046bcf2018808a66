"""Drivers' errors, translated for a caller whose transaction was joined.

Our error says what to do with the transaction; the driver's error is its cause.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager

from holdfast.errors import AppendError, HoldfastError, StoreConflict
from holdfast.sql.database import Database, causes, translating

AGAIN = "roll the transaction back and run it again from its start"


def translated(database: Database) -> AbstractContextManager[None]:
    """Runs our statements on a connection of the caller's."""
    return translating(Exception, lambda error: _meaning(error, database))


def _meaning(error: Exception, database: Database) -> HoldfastError | None:
    """Our error for a driver's, or None to let it pass."""
    for cause in causes(error):
        # asyncpg and psycopg say sqlstate, psycopg2 says pgcode.
        match getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None):
            case "25P02":
                return AppendError(f"this transaction has failed before; {AGAIN}")
            case "25006":
                return AppendError("this transaction is read-only; append in one that may write")
            case "42501":
                return AppendError(
                    f"{_first_line(cause)}: the role of this connection needs the rights of a role "
                    f"that appends; {AGAIN}"
                )
            case "42P01" | "42883" | "3F000":
                return _no_tables()
            case "23505":
                # Only where the transaction's snapshot is older than the other append, or two
                # transactions append events of the same ids to different streams.
                return StoreConflict(f"another transaction has appended the same; {AGAIN}")
            case "40001" | "40P01" | "55P03":
                return StoreConflict(f"{_first_line(cause)}; {AGAIN}")
        code = getattr(cause, "sqlite_errorcode", None)
        if isinstance(code, int) and code & 0xFF == sqlite3.SQLITE_BUSY:
            return StoreConflict(
                f"another connection writes to this SQLite file ({cause}); {AGAIN}. Begin it with "
                "BEGIN IMMEDIATE: one that reads first is refused instead of waiting"
            )
    return database.unavailable(error)


def _no_tables() -> AppendError:
    return AppendError(
        "this connection sees no holdfast tables: it is on another database (or another "
        "search_path) than the journal; connection= joins a transaction of the journal's own"
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
