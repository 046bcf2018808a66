"""A runner's connection to PostgreSQL: other threads, its loss, other encodings."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from holdfast import App, StoreUnavailable
from holdfast.sql.database import Row
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.url import PostgresUrl, parse_url
from tests.contracts.samples import WAIT_SECONDS, Counted, Sums, fetch
from tests.support.postgres import wait_until

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'holdfast%%'"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'locked'::regclass"
SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    url = parse_url(postgres_url)
    assert isinstance(url, PostgresUrl)
    with closing(PostgresDatabase(url)) as opened:
        yield opened


@pytest.fixture
def raw(database: PostgresDatabase) -> Iterator[psycopg.Connection[Row]]:
    with closing(database.connect_raw()) as connected:
        yield connected


def test_a_thread_that_a_handler_has_left_waits_for_its_turn(
    database: PostgresDatabase, raw: psycopg.Connection[Row]
) -> None:
    with ThreadPoolExecutor(2) as pool, closing(database.connect()) as connection:
        ours = _asleep(connection, pool, raw, seconds=1.0)
        theirs = pool.submit(lambda: connection.raw.execute("SELECT 'theirs'").fetchall())
        assert [*ours.result(WAIT_SECONDS)] == [("ours",)]
        assert theirs.result(WAIT_SECONDS) == [("theirs",)]


def test_a_connection_is_ended_under_a_thread_that_waits(
    database: PostgresDatabase, raw: psycopg.Connection[Row]
) -> None:
    with ThreadPoolExecutor(1) as pool, closing(database.connect()) as connection:
        waiting = _asleep(connection, pool, raw, seconds=3600.0)
        connection.abort()
        assert connection.is_lost
        with pytest.raises(StoreUnavailable):
            waiting.result(WAIT_SECONDS)
        with pytest.raises(StoreUnavailable):
            connection.read(0, 1)
    # The server looks after its clients once a second.
    wait_until(lambda: raw.execute(SLEEPING).fetchone() == (0,), WAIT_SECONDS, "it to end")


def _asleep(
    connection: PostgresConnection,
    pool: ThreadPoolExecutor,
    raw: psycopg.Connection[Row],
    *,
    seconds: float,
) -> Future[list[Row]]:
    """A statement that a thread waits for, when `raw` has seen that it runs."""
    slow = "SELECT 'ours' FROM pg_sleep(%(seconds)s::double precision)"
    waiting = pool.submit(connection.run_native, slow, {"seconds": seconds})
    wait_until(lambda: raw.execute(SLEEPING).fetchone() == (1,), WAIT_SECONDS, "it to sleep")
    return waiting


def test_a_database_may_have_another_encoding(postgres_url: str) -> None:
    """What is packed here is UTF-8, so the connection says that."""
    name = f"latin_{threading.get_native_id()}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    url = postgres_url.rpartition("/")[0] + f"/{name}"
    try:
        _count_in(url)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _count_in(url: str) -> None:
    with App(url) as app:
        app.migrate()

        app.projection(Sums)
        app.journal.append("café", [Counted(n=1), Counted(n=2)])
        app.catch_up()
        assert fetch(app, "SELECT stream, total FROM sums") == [("café", 3)]
    with psycopg.connect(url, client_encoding="UTF8") as plain:
        assert plain.execute("SHOW server_encoding").fetchone() == ("LATIN1",)
        assert plain.execute("SELECT stream, total FROM sums").fetchall() == [("café", 3)]
