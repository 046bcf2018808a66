"""A PgBouncer between the app and the server: session mode works, the others are refused."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest

from holdfast import App, ConfigError, StoreUnavailable
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.postgres.notify import Notifier
from holdfast.sql.url import PostgresUrl
from tests.conftest import PGBOUNCER_MISSING
from tests.contracts.samples import WAIT_SECONDS, Counted, Sums, fetch
from tests.support.pgbouncer import PgBouncer, PgBouncerUnavailable

SET_IN_SESSION = "SELECT name FROM pg_settings WHERE source = 'session'"


@pytest.fixture
def through(postgres_url: str) -> Iterator[Callable[..., str]]:
    """The URL of the database through a PgBouncer of this mode."""
    with ExitStack() as stack:

        def open_(pool_mode: str, **settings: Any) -> str:
            try:
                return stack.enter_context(PgBouncer(postgres_url, pool_mode, **settings)).url
            except PgBouncerUnavailable as error:
                pytest.skip(f"{PGBOUNCER_MISSING}: {error}")

        yield open_


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pool_without_sessions_is_refused_and_left_as_it_was(
    through: Callable[..., str], mode: str
) -> None:
    url = through(mode)
    with psycopg.connect(url, autocommit=True) as other:
        before = other.execute(SET_IN_SESSION).fetchall()
        with App(url) as app, pytest.raises(ConfigError, match=r"transaction mode.*session mode"):
            app.journal.append("a", [Counted(n=1)])
        assert other.execute(SET_IN_SESSION).fetchall() == before


def test_a_pool_of_sessions_works(through: Callable[..., str]) -> None:
    with App(through("session")) as app:
        app.projection(Sums)
        with app.running():
            position = app.journal.append("a", [Counted(n=1)]).position
            app.wait_for("sums", position, timeout_seconds=WAIT_SECONDS)
        assert fetch(app, "SELECT total FROM sums") == [(1,)]


def test_a_pool_of_one_session_is_no_pool_of_transactions(
    through: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sql.postgres.pooler.PROBE_SECONDS", 0.1)
    with closing(PostgresDatabase(PostgresUrl(through("session", pool_size=1)))) as database:
        database.connect_raw().close()


def test_a_notification_leaves_nothing_in_its_session(postgres_url: str) -> None:
    left: list[Any] = []

    class Watched(psycopg.Connection[Any]):
        def close(self) -> None:
            left.append(self.execute(SET_IN_SESSION).fetchall())
            super().close()

    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute("LISTEN holdfast")
        notifier = Notifier(lambda: Watched.connect(postgres_url, autocommit=True))
        notifier.kick()
        assert [*listener.notifies(timeout=WAIT_SECONDS, stop_after=1)]
        notifier.close()
    assert left
    assert ("synchronous_commit",) not in left[0]


@pytest.mark.parametrize("spoil", ["PREPARE _pg3_0 AS SELECT 1", "DEALLOCATE ALL"])
def test_statements_that_others_have_prepared_or_forgotten_are_told(
    postgres_url: str, spoil: str
) -> None:
    """As behind a pooler in transaction mode that was not found out."""
    with (
        closing(PostgresDatabase(PostgresUrl(postgres_url))) as database,
        closing(database.connect()) as connection,
    ):

        def run_often() -> None:
            for n in range(20):
                if n in (0, 10):
                    connection.raw.pgconn.exec_(spoil.encode())
                connection.run_native("SELECT %(n)s::int", {"n": n})

        with pytest.raises(StoreUnavailable, match=r"a pooler is between.*session mode"):
            run_often()
