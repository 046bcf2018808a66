"""The databases that the contracts run on: a mix-in for each supplies `url` and what follows.

PostgreSQL tests share one database a process, emptied before each.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from uuid import UUID, uuid4

import pytest

from holdfast import App, Journal, NewEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Leases
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source
from holdfast.sql.database import Database
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.session import SqlLeases, SqlSession


class OnDatabase:
    """Fixtures that are the same everywhere, once there is a `url`."""

    placeholder = "?"

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def open_app(self, url: str) -> Iterator[Callable[..., App]]:
        with ExitStack() as opened:
            yield lambda **settings: opened.enter_context(App(url, **settings))

    @pytest.fixture
    def app(self, open_app: Callable[..., App]) -> App:
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

    @pytest.fixture
    def source(self, database: Database) -> Iterator[Source]:
        with closing(SqlSession(database)) as session, closing(HeadReader(database)) as reader:
            yield JournalSource(session, reader, shares=False)

    @pytest.fixture
    def add(self, journal: Journal) -> Callable[[int], list[UUID]]:
        """Adds events to the feed, each to a stream of its own."""

        def add(count: int) -> list[UUID]:
            ids = [uuid4() for _ in range(count)]
            journal.append(str(ids[0]), [NewEvent({}, type="Added", id=id_) for id_ in ids])
            return ids

        return add

    @pytest.fixture
    def open_checkpoint(self, open_session: Callable[[], Session]) -> Callable[[str], Checkpoint]:
        return lambda name: open_session().open_checkpoint(name, "journal")

    @pytest.fixture
    def open_leases(self, database: Database, open_app: Callable[..., App]) -> Callable[[], Leases]:
        """Another process's leases, as far as the database can tell: by file or by connection."""
        return lambda: SqlLeases(open_app()._database)


class OnSqliteFile(OnDatabase):
    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        return sqlite_url


class OnSqliteMemory(OnDatabase):
    @pytest.fixture
    def url(self) -> str:
        return "sqlite:///:memory:"

    @pytest.fixture
    def open_leases(self, database: Database, open_app: Callable[..., App]) -> Callable[[], Leases]:
        """Another process can't reach this database."""
        return lambda: SqlLeases(database)


class OnPostgres(OnDatabase):
    placeholder = "%s"

    @pytest.fixture
    def url(self, emptied_postgres_url: str) -> str:
        return emptied_postgres_url
