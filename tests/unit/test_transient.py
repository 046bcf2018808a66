"""is_transient: errors as the libraries really raise them."""

import asyncio
import errno
import socket
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import asyncpg
import psycopg
import psycopg.errors
import psycopg2  # type: ignore[import-untyped]
import psycopg_pool
import pytest
import sqlalchemy
import sqlalchemy.exc

from holdfast import StoreConflict, StoreUnavailable, is_transient
from tests.support.joining import WAYS, Way

NOBODY_LISTENS = "host=127.0.0.1 port=1 connect_timeout=5"


def error_of(function: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011
        function()
    return found.value


@contextmanager
def sqlite_way(name: str, folder: Path) -> Iterator[Way]:
    way = WAYS["sqlite"][name](f"sqlite:///{folder}/a.db")
    try:
        yield way
    finally:
        way.close()


def statement_error(way: Way, *statements: str) -> Exception:
    """What a library raises for the last statement, inside a transaction of its own."""
    found: list[Exception] = []
    try:
        with way.transaction():
            try:
                for statement in statements:
                    way.execute(statement)
            except Exception as error:
                found.append(error)
                raise
    except Exception as error:
        found.append(error)
    return found[0]


# Python's own


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(),
        ConnectionResetError(),
        BrokenPipeError(),
        TimeoutError(),
        InterruptedError(),
        StoreUnavailable("away"),
        StoreConflict("deadlock"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ],
    ids=repr,
)
def test_the_network_comes_back(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("no"),
        FileNotFoundError(errno.ENOENT, "no"),
        PermissionError(errno.EACCES, "no"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        KeyboardInterrupt(),
        SystemExit(1),
    ],
    ids=repr,
)
def test_a_mistake_does_not_pass(error: BaseException) -> None:
    assert not is_transient(error)


def test_a_time_limit_of_asyncio() -> None:
    async def never() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert is_transient(error_of(lambda: asyncio.run(never())))


def test_a_refused_connection_inside_urllibs_error() -> None:
    error = error_of(lambda: urllib.request.urlopen("http://127.0.0.1:1/"))
    assert isinstance(error, urllib.error.URLError)
    assert is_transient(error)
    assert not is_transient(error_of(lambda: urllib.request.urlopen("nonsense://127.0.0.1/")))


def test_a_cause_counts_and_a_context_does_not() -> None:
    def wrapped() -> None:
        try:
            raise ConnectionResetError
        except ConnectionResetError as error:
            raise LookupError from error

    def caught() -> None:
        try:
            raise ConnectionResetError
        except ConnectionResetError:
            raise LookupError  # noqa: B904

    assert is_transient(error_of(wrapped))
    assert not is_transient(error_of(caught))


def test_causes_that_go_round_in_a_circle() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert not is_transient(first)


def test_a_group_is_transient_if_all_of_it_is() -> None:
    assert is_transient(ExceptionGroup("calls", [TimeoutError(), ConnectionError()]))
    assert not is_transient(ExceptionGroup("calls", [TimeoutError(), ValueError()]))


# SQLite, through every library


@pytest.mark.parametrize("name", WAYS["sqlite"])
def test_a_busy_sqlite(name: str, tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other,
        sqlite_way(name, tmp_path) as way,
    ):
        other.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        with way.transaction():
            way.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        error = statement_error(way, "INSERT INTO t (id) VALUES (1)")
    assert is_transient(error)


@pytest.mark.parametrize("name", WAYS["sqlite"])
def test_sqlite_refuses_a_row_or_a_statement(name: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        other.execute("INSERT INTO t (id) VALUES (1)")
    with sqlite_way(name, tmp_path) as way:
        assert not is_transient(statement_error(way, "INSERT INTO t (id) VALUES (1)"))
        assert not is_transient(statement_error(way, "SELECT nothing FROM nowhere"))


# PostgreSQL, through every library


@pytest.mark.parametrize("name", WAYS["postgres"])
def test_what_passes_on_postgres(name: str, postgres_url: str) -> None:
    way = WAYS["postgres"][name](postgres_url)
    try:
        slow = statement_error(way, "SET LOCAL statement_timeout = 1", "SELECT pg_sleep(60)")
        assert is_transient(slow)
        with psycopg.connect(postgres_url) as other:
            other.execute("CREATE TABLE t (id integer PRIMARY KEY)")
            other.commit()
            other.execute("LOCK TABLE t")
            locked = statement_error(way, "SET LOCAL lock_timeout = 1", "SELECT id FROM t")
        assert is_transient(locked)
        cut = statement_error(way, "SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1")
        assert is_transient(cut)
    finally:
        with suppress(Exception):
            way.close()


@pytest.mark.parametrize("name", WAYS["postgres"])
def test_what_does_not_pass_on_postgres(name: str, postgres_url: str) -> None:
    way = WAYS["postgres"][name](postgres_url)
    try:
        with way.transaction():
            way.execute("CREATE TABLE t (id integer PRIMARY KEY)")
            way.execute("INSERT INTO t (id) VALUES (1)")
        assert not is_transient(statement_error(way, "INSERT INTO t (id) VALUES (1)"))
        assert not is_transient(statement_error(way, "SELECT nothing FROM nowhere"))
        assert not is_transient(statement_error(way, "SELECT 1 / 0"))
    finally:
        way.close()


def test_a_server_that_is_not_there() -> None:
    for connect in (psycopg.connect, psycopg2.connect):
        error = error_of(lambda connect=connect: connect(NOBODY_LISTENS))  # type: ignore[misc]
        assert is_transient(error), error
    for driver in ("psycopg", "psycopg2"):
        engine = sqlalchemy.create_engine(f"postgresql+{driver}://127.0.0.1:1/a")
        error = error_of(engine.connect)
        assert isinstance(error, sqlalchemy.exc.OperationalError)
        assert is_transient(error)
    assert is_transient(error_of(lambda: asyncio.run(asyncpg.connect(host="127.0.0.1", port=1))))


def test_pools_that_are_empty(postgres_url: str) -> None:
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=1) as pool:
        with pool.connection():
            error = error_of(lambda: pool.getconn(timeout=0.001))
        assert isinstance(error, psycopg_pool.PoolTimeout)
        assert is_transient(error)
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0
    )
    with engine.connect():
        error = error_of(engine.connect)
    engine.dispose()
    assert isinstance(error, sqlalchemy.exc.TimeoutError)
    assert is_transient(error)


def test_wrong_use_of_asyncpg_is_no_matter_of_time(postgres_url: str) -> None:
    async def use() -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            await connection.fetch("SELECT $1::integer")
        finally:
            await connection.close()

    error = error_of(lambda: asyncio.run(use()))
    assert isinstance(error, asyncpg.InterfaceError)
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08006", True),
        ("40001", True),
        ("40P01", True),
        ("53300", True),
        ("55P03", True),
        ("57014", True),
        ("57P01", True),
        ("58030", True),
        ("22003", False),
        ("23505", False),
        ("42P01", False),
        ("55006", False),
        ("P0001", False),
    ],
)
def test_states_of_postgres(state: str, expected: bool) -> None:
    error = psycopg.errors.lookup(state)("from the server")
    assert is_transient(error) is expected
