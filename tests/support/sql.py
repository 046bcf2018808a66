"""A statement on a test's database, past holdfast: to look, and to do what an operator might."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Runs one statement, commits it, and returns its rows."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw, raw:
            return raw.execute(statement).fetchall()
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
