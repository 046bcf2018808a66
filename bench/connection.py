"""One way to send SQL to either database, for what the benchmark writes by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import psycopg


class Cursor(Protocol):
    """What `execute` returns."""

    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Connection(Protocol):
    """What sqlite3 and psycopg have in common, and all that a hand-written loop needs."""

    def execute(self, statement: str, parameters: Sequence[object] = ..., /) -> Cursor: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


def connect(url: str) -> Connection:
    """The driver's own connection: nothing stands between the loop and the driver."""
    if is_sqlite(url):
        return sqlite3.connect(sqlite_path(url))
    return cast(Connection, psycopg.connect(url))


def native(statement: str, url: str) -> str:
    """The statement with its `?` in the parameter style of the URL's driver."""
    return statement if is_sqlite(url) else statement.replace("?", "%s")


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def sqlite_path(url: str) -> Path:
    """The file a SQLite URL names."""
    return Path(url.removeprefix("sqlite:///"))
