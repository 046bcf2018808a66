"""The pool of connections: used again while they are good, never handed out when they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast import App, NewEvent, StoreUnavailable
from holdfast.sql.postgres.pool import Pool
from tests.support.postgres import PostgresServer, wait_until

WAIT_SECONDS = 30.0

Raw = psycopg.Connection[Any]
Connect = Callable[[], Raw]


@pytest.fixture
def connect(postgres_url: str) -> Connect:
    return lambda: psycopg.connect(postgres_url, autocommit=True)


@pytest.fixture
def pool(connect: Connect) -> Iterator[Pool]:
    with closing(Pool(connect, max_connections=2, wait_seconds=0.01)) as pool:
        yield pool


def backend(raw: Raw) -> int:
    """The server's process of this connection, which is asked to do something."""
    row = raw.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def end(connect: Connect, pid: int) -> None:
    """Ends a connection from the server's side, and returns when it is gone."""
    with connect() as operator:
        operator.execute("SELECT pg_terminate_backend(%s)", (pid,))
        gone = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        wait_until(
            lambda: operator.execute(gone, (pid,)).fetchone() is None, WAIT_SECONDS, "its end"
        )


def test_a_connection_is_used_again(pool: Pool) -> None:
    with pool.connection() as raw:
        first = backend(raw)
    with pool.connection() as raw:
        assert backend(raw) == first
        with pool.connection() as other:
            assert backend(other) != first


def test_more_than_there_are_is_an_error_that_says_so(pool: Pool) -> None:
    with (
        pool.connection(),
        pool.connection(),
        pytest.raises(StoreUnavailable, match="all 2 connections"),
        pool.connection(),
    ):
        raise NotImplementedError
    with pool.connection() as raw:
        assert backend(raw)


def test_one_that_the_server_has_closed_is_not_handed_out(pool: Pool, connect: Connect) -> None:
    with pool.connection() as raw:
        first = backend(raw)
    end(connect, first)
    with pool.connection() as raw:
        assert backend(raw) != first


def test_one_that_broke_in_use_is_closed(pool: Pool, connect: Connect) -> None:
    def use() -> None:
        with pool.connection() as raw:
            end(connect, backend(raw))
            raw.execute("SELECT 1")

    with pytest.raises(psycopg.OperationalError):
        use()
    with pool.connection() as raw:
        assert backend(raw)


@pytest.mark.parametrize("statement", ["SELECT 1", "SELECT 1/0"])
def test_one_that_comes_back_inside_a_transaction_is_closed(pool: Pool, statement: str) -> None:
    def use() -> None:
        with pool.connection() as raw:
            raw.execute("BEGIN")
            raw.execute(statement)
            raise KeyError(raw)

    with pytest.raises((KeyError, psycopg.DataError)):
        use()
    with pool.connection() as raw:
        assert raw.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        assert backend(raw)


def test_a_failing_connect_takes_no_place(connect: Connect) -> None:
    is_away = True

    def try_to() -> Raw:
        if is_away:
            raise StoreUnavailable("away")
        return connect()

    pool = Pool(try_to, max_connections=1, wait_seconds=0.01)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="away"), pool.connection():
            raise NotImplementedError
    is_away = False
    with closing(pool), pool.connection() as raw:
        assert backend(raw)


def test_closing_closes_the_idle_now_and_the_others_when_they_come_back(pool: Pool) -> None:
    with pool.connection() as used:
        with pool.connection() as idle:
            pass
        pool.close()
        assert idle.closed
        assert backend(used)
    assert used.closed


def test_appends_fail_while_the_server_is_away_and_work_when_it_is_back() -> None:
    event = [NewEvent({}, type="Added")]
    with PostgresServer(durable=True) as server, App(server.create_database()) as app:
        app.journal.append("one", event)
        server.kill()
        server.restart()
        app.journal.append("one", event)  # The pool's connection is dead, and nobody notices.
        server.kill()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                app.journal.append("one", event)
        server.restart()
        assert app.journal.append("one", event).version == 3


def test_a_wrong_url_is_an_error_that_names_it(postgres_url: str) -> None:
    with (
        App(f"{postgres_url}_not_there") as app,
        pytest.raises(StoreUnavailable, match="does not exist"),
    ):
        app.journal.append("one", [NewEvent({}, type="Added")])
