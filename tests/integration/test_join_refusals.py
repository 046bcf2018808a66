"""What can't be joined is refused with a sentence that helps, and nothing is written."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
import sqlalchemy.orm
from django.core.cache import cache as django_cache
from django.db import connections as django_connections
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from holdfast import App, AppendError, NewEvent
from tests.support.joining import (
    Django,
    Psycopg,
    PsycopgAsync,
    SqlalchemyAsyncConnection,
    SqlalchemyAsyncSession,
    SqlalchemyConnection,
    SqlalchemySession,
    Sqlite3Explicit,
    Way,
    opened,
    set_up_django,
    sqlalchemy_url,
)

EVENTS = [NewEvent({}, type="Placed")]

AUTOCOMMIT: dict[str, Callable[[str], Way]] = {
    "sqlite sqlite3": Sqlite3Explicit,
    "sqlite sqlalchemy connection": lambda u: SqlalchemyConnection(u, isolation_level="AUTOCOMMIT"),
    "sqlite sqlalchemy session": lambda u: SqlalchemySession(u, isolation_level="AUTOCOMMIT"),
    "sqlite sqlalchemy async connection": lambda u: SqlalchemyAsyncConnection(
        u, isolation_level="AUTOCOMMIT"
    ),
    "sqlite sqlalchemy async session": lambda u: SqlalchemyAsyncSession(
        u, isolation_level="AUTOCOMMIT"
    ),
    "sqlite django": Django,
    "postgres psycopg": lambda u: Psycopg(u, autocommit=True),
    "postgres psycopg async": lambda u: PsycopgAsync(u, autocommit=True),
    "postgres sqlalchemy connection": lambda u: SqlalchemyConnection(
        u, isolation_level="AUTOCOMMIT"
    ),
    "postgres psycopg2 connection": lambda u: SqlalchemyConnection(
        u, driver="psycopg2", isolation_level="AUTOCOMMIT"
    ),
    "postgres sqlalchemy session": lambda u: SqlalchemySession(u, isolation_level="AUTOCOMMIT"),
    "postgres sqlalchemy async connection": lambda u: SqlalchemyAsyncConnection(
        u, isolation_level="AUTOCOMMIT"
    ),
    "postgres sqlalchemy async session": lambda u: SqlalchemyAsyncSession(
        u, isolation_level="AUTOCOMMIT"
    ),
    "postgres asyncpg connection": lambda u: SqlalchemyAsyncConnection(
        u, driver="asyncpg", isolation_level="AUTOCOMMIT"
    ),
    "postgres django": Django,
}


@pytest.fixture
def postgres_url(emptied_postgres_url: str) -> str:
    return emptied_postgres_url


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        app.migrate()
        yield app


@pytest.mark.parametrize("name", AUTOCOMMIT)
def test_without_an_open_transaction(name: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{name.partition(' ')[0]}_url")
    with App(url) as app, opened(AUTOCOMMIT[name](url)) as way:
        app.migrate()
        with pytest.raises(AppendError, match="joins an open transaction, and there is none"):
            way.append(app.journal, "order-1", EVENTS)
        assert app.journal.head() == 0


def test_autocommit_with_an_open_transaction_is_fine(postgres_url: str) -> None:
    with App(postgres_url) as app, opened(Psycopg(postgres_url, autocommit=True)) as way:
        app.migrate()
        with way.transaction():
            way.append(app.journal, "order-1", EVENTS)
        assert app.journal.head() == 1


def test_django_without_autocommit_is_in_a_transaction(store_url: str) -> None:
    with App(store_url) as app, opened(Django(store_url)) as way:
        app.migrate()
        way.connection.set_autocommit(False)
        way.append(app.journal, "order-1", EVENTS)
        way.connection.rollback()
        assert app.journal.head() == 0
        way.append(app.journal, "order-1", EVENTS)
        way.connection.commit()
        assert len(list(app.journal.read())) == 1


@pytest.mark.parametrize(
    "make",
    [PsycopgAsync, SqlalchemyAsyncConnection, SqlalchemyAsyncSession],
)
def test_an_async_connection_in_a_sync_call(postgres_url: str, make: Callable[[str], Way]) -> None:
    with App(postgres_url) as app, opened(make(postgres_url)) as way:
        app.migrate()
        with way.transaction():
            with pytest.raises(AppendError, match=r"await journal\.append_async"):
                app.journal.append("order-1", EVENTS, connection=way.connection)
            way.append(app.journal, "order-1", EVENTS)
        assert app.journal.head() == 1


def test_a_sync_connection_in_an_async_call_is_joined(store_url: str) -> None:
    with App(store_url) as app, opened(SqlalchemyConnection(store_url)) as way:
        app.migrate()
        with way.transaction():
            asyncio.run(app.journal.append_async("order-1", EVENTS, connection=way.connection))
            assert app.journal.head() == 0
        assert app.journal.head() == 1


NO_CONNECTIONS: dict[str, Callable[[str], Any]] = {
    "sqlalchemy.engine.base.Engine": lambda url: sqlalchemy.create_engine(sqlalchemy_url(url)),
    "sqlalchemy.orm.session.sessionmaker": lambda _: sqlalchemy.orm.sessionmaker(),
    "AsyncEngine": lambda url: create_async_engine(sqlalchemy_url(url, is_async=True)),
    "async_sessionmaker": lambda _: async_sessionmaker(),
    "psycopg_pool": lambda url: psycopg_pool.ConnectionPool(url, open=False),
    "ConnectionHandler": lambda _: django_connections,
    "ConnectionProxy": lambda _: django_cache,
    "builtins.str": lambda url: url,
    "holdfast.app.App": App,
}


@pytest.mark.parametrize("name", NO_CONNECTIONS)
def test_what_is_no_connection(app: App, store_url: str, name: str) -> None:
    set_up_django()
    with pytest.raises(AppendError, match=f"can't join .*{name}.*takes a connection of"):
        app.journal.append("order-1", EVENTS, connection=NO_CONNECTIONS[name](store_url))
    assert app.journal.head() == 0


def test_a_psycopg_cursor(postgres_url: str) -> None:
    with App(postgres_url) as app, psycopg.connect(postgres_url) as connection:
        app.migrate()
        with pytest.raises(AppendError, match=r"can't join psycopg\.Cursor"):
            app.journal.append("order-1", EVENTS, connection=connection.cursor())


def test_scoped_sessions(store_url: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(store_url))
    session = sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(engine))
    with App(store_url) as app:
        app.migrate()
        app.journal.append("order-1", EVENTS, connection=session)
        session.rollback()
        assert app.journal.head() == 0
        app.journal.append("order-1", EVENTS, connection=session)
        session.commit()
        assert len(list(app.journal.read())) == 1
        session.remove()
        engine.dispose()


def test_an_async_session_in_name_only_is_a_sync_one(store_url: str) -> None:
    class AsyncSafeSession(sqlalchemy.orm.Session):
        pass

    engine = sqlalchemy.create_engine(sqlalchemy_url(store_url))
    with App(store_url) as app, AsyncSafeSession(engine) as session:
        app.migrate()
        app.journal.append("order-1", EVENTS, connection=session)
        session.commit()
        assert app.journal.head() == 1
    engine.dispose()


def test_async_scoped_sessions(store_url: str) -> None:
    async def append(app: App) -> None:
        engine = create_async_engine(sqlalchemy_url(store_url, is_async=True))
        session: async_scoped_session[AsyncSession] = async_scoped_session(
            async_sessionmaker(engine), scopefunc=asyncio.current_task
        )
        await app.journal.append_async("order-1", EVENTS, connection=session)
        await session.commit()
        await session.remove()
        await engine.dispose()

    with App(store_url) as app:
        app.migrate()
        asyncio.run(append(app))
        assert app.journal.head() == 1
