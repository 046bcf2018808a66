"""Statements that go to PostgreSQL in one call of the C library."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import App, Event, StoreUnavailable, TableProjection, on
from holdfast.model.column_values import MAX_INT, MIN_INT
from holdfast.sql.database import Row
from holdfast.sql.postgres.array_packing import packed
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.postgres.prepared import Prepared
from holdfast.sql.url import PostgresUrl, parse_url
from tests.contracts.samples import WAIT_SECONDS, Counted, fetch
from tests.support.postgres import wait_until

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'holdfast%%'"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'locked'::regclass"
SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@dataclass
class Sum:
    stream: str
    total: int = 0


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


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("bigint", MAX_INT),
        ("bigint", MIN_INT),
        ("integer", -7),
        ("double precision", 1 / 3),
        ("text", "é \U0001f680 100 % $1"),
        ("uuid", UUID(int=2**127 + 1)),
        ("timestamptz", datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("bigint", None),
        ("text", None),
    ],
)
def test_a_value_comes_back_as_it_was_sent(
    raw: psycopg.Connection[Row], type_: str, value: Any
) -> None:
    statement = Prepared(raw, f"SELECT %(a)s::{type_}, 5 %% 3, %(a)s::{type_}, %(b)s::bigint[]")
    found = statement.run({"a": value, "b": packed("int", [1, 2])})
    assert [*found] == [(value, 2, value, [1, 2])]


def test_a_statement_that_was_forgotten_is_prepared_again(
    raw: psycopg.Connection[Row],
) -> None:
    statement = Prepared(raw, "SELECT %(n)s::bigint")
    raw.execute("DEALLOCATE ALL")
    assert [*statement.run({"n": 1})] == [(1,)]
    raw.execute("DISCARD ALL")
    assert [*statement.run({"n": 2})] == [(2,)]


def test_nothing_is_prepared_on_a_connection_that_is_lent(
    postgres_url: str, database: PostgresDatabase
) -> None:
    """It goes back to the pool, and nobody would use the statement again."""
    with App(postgres_url) as app:
        app.migrate()
    for _ in range(3):
        with database.reading() as lent:
            lent.read(0, 1)
    with database.reading() as lent:
        assert lent.run_native(PREPARED, {}) == [(0,)]
    with closing(database.connect()) as own:
        for _ in range(3):
            own.read(0, 1)
        assert own.run_native(PREPARED, {}) == [(1,)]


def test_a_thread_that_a_handler_has_left_waits_for_its_turn(
    database: PostgresDatabase, raw: psycopg.Connection[Row]
) -> None:
    with ThreadPoolExecutor(2) as pool, closing(database.connect()) as connection:
        ours = _asleep(connection, pool, raw, seconds=1.0)
        theirs = pool.submit(lambda: connection.raw.execute("SELECT 'theirs'").fetchall())
        assert [*ours.result(WAIT_SECONDS)] == [("ours",)]
        assert theirs.result(WAIT_SECONDS) == [("theirs",)]


def test_others_go_on_while_a_statement_is_prepared(
    postgres_url: str, raw: psycopg.Connection[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is locked between the two steps; the driver's own second step stops all threads."""
    raw.execute("CREATE TABLE locked (n bigint); SET lock_timeout = '10s'")
    checked, is_locked = Prepared._checked, threading.Event()
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as pool:

        def lock_first(self: Prepared, result: Any) -> Any:
            if not is_locked.is_set():
                other.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
                is_locked.set()
            return checked(self, result)

        monkeypatch.setattr(Prepared, "_checked", lock_first)
        preparing = pool.submit(Prepared, raw, "SELECT n FROM locked")
        assert is_locked.wait(WAIT_SECONDS)
        wait_until(lambda: other.execute(WAITING).fetchone() == (1,), WAIT_SECONDS, "it to wait")
        other.rollback()
        assert [*preparing.result(WAIT_SECONDS).run({})] == []


def test_errors_are_the_drivers(raw: psycopg.Connection[Row]) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
        Prepared(raw, "SELECT 1 FROM nowhere")
    statement = Prepared(raw, "SELECT 1 / %(n)s::bigint")
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        statement.run({"n": 0})
    assert caught.value.sqlstate == "22012"
    assert [*statement.run({"n": 1})] == [(1,)]


def test_a_connection_is_ended_under_a_thread_that_waits(
    database: PostgresDatabase, raw: psycopg.Connection[Row]
) -> None:
    with ThreadPoolExecutor(1) as pool, closing(database.connect()) as connection:
        waiting = _asleep(connection, pool, raw, seconds=3600.0)
        connection.abort()
        assert connection.is_lost
        with pytest.raises(psycopg.OperationalError) as caught:
            waiting.result(WAIT_SECONDS)
        assert database.unavailable(caught.value) is not None
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
) -> Future[Sequence[Row]]:
    """A statement that a thread waits for, when `raw` has seen that it runs."""
    slow = Prepared(connection.raw, "SELECT 'ours' FROM pg_sleep(%(seconds)s::double precision)")
    waiting = pool.submit(slow.run, {"seconds": seconds})
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

        @app.projection
        class Sums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.total += event.data.n

        app.journal.append("café", [Counted(n=1), Counted(n=2)])
        app.catch_up()
        assert fetch(app, "SELECT stream, total FROM sums") == [("café", 3)]
    with psycopg.connect(url, client_encoding="UTF8") as plain:
        assert plain.execute("SHOW server_encoding").fetchone() == ("LATIN1",)
        assert plain.execute("SELECT stream, total FROM sums").fetchall() == [("café", 3)]
