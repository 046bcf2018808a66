"""Ways in which applications hold a transaction open, so that one test can try them all.

Each way drives its library as an application would: transactions and savepoints are the library's
own context managers. The asynchronous ones run on an event loop of their own, a call at a time.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

import django
import psycopg
import sqlalchemy.orm
from django.conf import settings as django_settings
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from holdfast import Appended, Journal, Outbox


class Way(Protocol):
    """One library, connected to one database."""

    connection: Any
    """What the application passes as connection=."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Commits at the end of the block, rolls back if it raises."""

    def savepoint(self) -> AbstractContextManager[Any]:
        """Is released at the end of the block, rolled back to if it raises."""

    def execute(self, sql: str) -> None:
        """Runs a statement of the application's."""

    def append(
        self, journal: Journal, stream: str, events: Sequence[Any], **options: Any
    ) -> Appended:
        """Appends with connection=."""

    def send(self, outbox: Outbox, topic: str, payload: Any, *, key: str) -> None:
        """Sends with connection=."""

    def close(self) -> None: ...


class _Blocking:
    connection: Any

    def append(
        self, journal: Journal, stream: str, events: Sequence[Any], **options: Any
    ) -> Appended:
        return journal.append(stream, events, connection=self.connection, **options)

    def send(self, outbox: Outbox, topic: str, payload: Any, *, key: str) -> None:
        outbox.send(topic, payload, key=key, connection=self.connection)


class Sqlite3(_Blocking):
    """sqlite3 as it comes: it begins by itself before the first write."""

    def __init__(self, url: str) -> None:
        self.connection = sqlite3.connect(url.removeprefix("sqlite:///"))

    def transaction(self) -> Any:
        return self.connection

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.connection.execute("SAVEPOINT s")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO s")
            raise
        finally:
            self.connection.execute("RELEASE s")

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def close(self) -> None:
        self.connection.close()


class Sqlite3Explicit(Sqlite3):
    """sqlite3 without its own ideas: the application says BEGIN."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection.isolation_level = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        with self.connection:
            yield


class Psycopg(_Blocking):
    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        self.connection = psycopg.connect(url, autocommit=autocommit)

    def transaction(self) -> Any:
        return self.connection.transaction()

    savepoint = transaction

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def close(self) -> None:
        self.connection.close()


class SqlalchemyConnection(_Blocking):
    def __init__(self, url: str, *, driver: str = "psycopg", **options: Any) -> None:
        self._engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver=driver), **options)
        self.connection = self._open()

    def _open(self) -> Any:
        return self._engine.connect()

    def transaction(self) -> Any:
        return self.connection.begin()

    def savepoint(self) -> Any:
        return self.connection.begin_nested()

    def execute(self, sql: str) -> None:
        self.connection.execute(text(sql))

    def close(self) -> None:
        self.connection.close()
        self._engine.dispose()


class SqlalchemySession(SqlalchemyConnection):
    def _open(self) -> Any:
        return sqlalchemy.orm.Session(self._engine)


class Django(_Blocking):
    def __init__(self, url: str) -> None:
        self._alias = _django_alias(url)
        self.connection = django_connections[self._alias]

    def transaction(self) -> Any:
        return django_transaction.atomic(using=self._alias)

    savepoint = transaction

    def execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def close(self) -> None:
        self.connection.close()
        del django_connections[self._alias]
        del django_connections.settings[self._alias]


class _Async:
    """Runs coroutines on a loop of its own."""

    connection: Any

    def __init__(self) -> None:
        self.loop = asyncio.Runner()

    def append(
        self, journal: Journal, stream: str, events: Sequence[Any], **options: Any
    ) -> Appended:
        return self.loop.run(
            journal.append_async(stream, events, connection=self.connection, **options)
        )

    def send(self, outbox: Outbox, topic: str, payload: Any, *, key: str) -> None:
        self.loop.run(outbox.send_async(topic, payload, key=key, connection=self.connection))

    @contextmanager
    def within(self, block: AbstractAsyncContextManager[Any]) -> Iterator[None]:
        """An `async with`, entered and left from outside the loop."""

        async def enter() -> None:
            await block.__aenter__()

        async def leave(*raised: Any) -> bool:
            return bool(await block.__aexit__(*raised))

        self.loop.run(enter())
        try:
            yield
        except BaseException as error:
            if not self.loop.run(leave(type(error), error, error.__traceback__)):
                raise
        else:
            self.loop.run(leave(None, None, None))


class PsycopgAsync(_Async):
    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        super().__init__()
        self.connection = self.loop.run(psycopg.AsyncConnection.connect(url, autocommit=autocommit))

    def transaction(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.transaction())

    savepoint = transaction

    def execute(self, sql: str) -> None:
        self.loop.run(self.connection.execute(sql))

    def close(self) -> None:
        self.loop.run(self.connection.close())
        self.loop.close()


class SqlalchemyAsyncConnection(_Async):
    def __init__(self, url: str, *, driver: str = "psycopg", **options: Any) -> None:
        super().__init__()
        self._engine = create_async_engine(sqlalchemy_url(url, is_async=True, driver=driver))
        self._options = options
        self.connection = self._open()

    def _open(self) -> Any:
        async def connect() -> AsyncConnection:
            connection = await self._engine.connect()
            return await connection.execution_options(**self._options)

        return self.loop.run(connect())

    def transaction(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.begin())

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.within(self.connection.begin_nested())

    def execute(self, sql: str) -> None:
        self.loop.run(self.connection.execute(text(sql)))

    def close(self) -> None:
        self.loop.run(self.connection.close())
        self.loop.run(self._engine.dispose())
        self.loop.close()


class SqlalchemyAsyncSession(SqlalchemyAsyncConnection):
    def _open(self) -> Any:
        return AsyncSession(self._engine.execution_options(**self._options))


def psycopg2_connection(url: str) -> Way:
    return SqlalchemyConnection(url, driver="psycopg2")


def asyncpg_connection(url: str) -> Way:
    return SqlalchemyAsyncConnection(url, driver="asyncpg")


def asyncpg_session(url: str) -> Way:
    return SqlalchemyAsyncSession(url, driver="asyncpg")


WAYS: dict[str, dict[str, Callable[[str], Way]]] = {
    "sqlite": {
        "sqlite3": Sqlite3,
        "sqlite3 explicit": Sqlite3Explicit,
        "sqlalchemy connection": SqlalchemyConnection,
        "sqlalchemy session": SqlalchemySession,
        "sqlalchemy async connection": SqlalchemyAsyncConnection,
        "sqlalchemy async session": SqlalchemyAsyncSession,
        "django": Django,
    },
    "postgres": {
        "psycopg": Psycopg,
        "psycopg async": PsycopgAsync,
        "sqlalchemy connection": SqlalchemyConnection,
        "sqlalchemy session": SqlalchemySession,
        "sqlalchemy async connection": SqlalchemyAsyncConnection,
        "sqlalchemy async session": SqlalchemyAsyncSession,
        "psycopg2 connection": psycopg2_connection,
        "asyncpg connection": asyncpg_connection,
        "asyncpg session": asyncpg_session,
        "django": Django,
    },
}
"""Every way, by the kind of database and the library."""


@contextmanager
def opened(way: Way) -> Iterator[Way]:
    """Closes the way at the end."""
    try:
        yield way
    finally:
        way.close()


def sqlalchemy_url(url: str, *, is_async: bool = False, driver: str = "psycopg") -> str:
    """The same database, as SQLAlchemy spells it."""
    kind, _, rest = url.partition("://")
    if kind == "sqlite":
        return f"sqlite+aiosqlite://{rest}" if is_async else url
    return f"postgresql+{driver}://{rest}"


_aliases = itertools.count()


def set_up_django() -> None:
    """Django wants its settings before it makes anything."""
    if not django_settings.configured:
        django_settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()


def _django_alias(url: str) -> str:
    """Makes the database known to Django, as an application's settings would."""
    set_up_django()
    alias = f"join_{next(_aliases)}"
    databases = {"default": {}, alias: _django_database(url)}
    django_connections.settings[alias] = django_connections.configure_settings(databases)[alias]
    return alias


def _django_database(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        name = url.removeprefix("sqlite:///")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name}
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": str(parts.get("port", "")),
    }


class Undo(Exception):
    """Raised by a test inside a block to have it rolled back."""


@contextmanager
def undone(block: AbstractContextManager[Any]) -> Iterator[None]:
    """Runs in `block`, then has it rolled back."""
    with suppress(Undo), block:
        yield
        raise Undo
