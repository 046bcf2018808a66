"""Where cases run: databases that are made, copied and dropped, on PostgreSQL and on SQLite."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bench.connection import sqlite_path
from tests.support.postgres import PostgresServer


class Databases(Protocol):
    """A place that makes databases and names each by its URL."""

    def create(self) -> str:
        """A new, empty database."""

    def copy(self, url: str) -> str:
        """A new database with the same content, safely on disk before this returns."""

    def drop(self, url: str) -> None:
        """Removes a database that nothing uses any more."""


class PostgresDatabases:
    """Databases of one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)

    def create(self) -> str:
        return self._server.create_database()

    def copy(self, url: str) -> str:
        original = str(conninfo_to_dict(url)["dbname"])
        name = f"{original}_copy_{next(self._numbers)}"
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                    sql.Identifier(name), sql.Identifier(original)
                )
            )
            # Without it, writing back what was loaded would fall into the timed part.
            connection.execute("CHECKPOINT")
        return self._server.url(name)

    def drop(self, url: str) -> None:
        self._server.drop_database(url)


class SqliteDatabases:
    """Files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def create(self) -> str:
        return f"sqlite:///{self._folder / f'{next(self._numbers)}.db'}"

    def copy(self, url: str) -> str:
        original = sqlite_path(url)
        with closing(sqlite3.connect(original)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copy = self.create()
        shutil.copyfile(original, sqlite_path(copy))
        with sqlite_path(copy).open("rb+") as file:
            os.fsync(file.fileno())
        return copy

    def drop(self, url: str) -> None:
        path = sqlite_path(url)
        for file in (path, *path.parent.glob(f"{path.name}-*")):
            file.unlink(missing_ok=True)
