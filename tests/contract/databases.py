"""The databases that the contracts run on: a mix-in for each supplies `url` and what follows.

PostgreSQL tests share one database a process, emptied before each: making one takes longer than
most of the tests.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from holdfast import App, Journal
from holdfast.core.ports import Session
from holdfast.sql.database import Database
from holdfast.sql.store import SqlSession

EMPTY = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"


class OnDatabase:
    """Fixtures that are the same everywhere, once there is a `url`."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def open_app(self, url: str) -> Iterator[Callable[[], App]]:
        with ExitStack() as opened:
            yield lambda: opened.enter_context(App(url))

    @pytest.fixture
    def app(self, open_app: Callable[[], App]) -> App:
        return open_app()

    @pytest.fixture
    def journal(self, app: App) -> Journal:
        return app.journal

    @pytest.fixture
    def database(self, app: App) -> Database:
        app.migrate()
        return app._database

    @pytest.fixture
    def open_session(self, database: Database) -> Iterator[Callable[[], Session]]:
        with ExitStack() as opened:
            yield lambda: opened.enter_context(closing(SqlSession(database)))


class OnSqliteFile(OnDatabase):
    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        return sqlite_url


class OnSqliteMemory(OnDatabase):
    @pytest.fixture
    def url(self) -> str:
        return "sqlite:///:memory:"


class OnPostgres(OnDatabase):
    @pytest.fixture
    def url(self, shared_postgres_url: str) -> str:
        with psycopg.connect(shared_postgres_url, autocommit=True) as connection:
            connection.execute(EMPTY)
        return shared_postgres_url
