"""Joining on PostgreSQL: isolation levels, locks, cursors and savepoints, on a real server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row

from holdfast import App, AppendError, ConcurrencyError, NewEvent, StoreConflict
from tests.support.joining import (
    Django,
    Psycopg,
    PsycopgAsync,
    SqlalchemyConnection,
    Way,
    asyncpg_connection,
    opened,
    psycopg2_connection,
    undone,
)
from tests.support.postgres import Databases, wait_until

EVENTS = [NewEvent({}, type="Placed")]


DRIVERS: list[Callable[[str], Way]] = [
    Psycopg,
    PsycopgAsync,
    SqlalchemyConnection,
    psycopg2_connection,
    asyncpg_connection,
    Django,
]
"""Every way in which a PostgreSQL error can come back."""


@pytest.fixture
def postgres_url(emptied_postgres_url: str) -> str:
    return emptied_postgres_url


@pytest.fixture
def app(postgres_url: str) -> Iterator[App]:
    with App(postgres_url) as app:
        app.migrate()
        yield app


@pytest.fixture(params=DRIVERS, ids=lambda make: make.__name__)
def way(app: App, postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Way]:
    with opened(request.param(postgres_url)) as way:
        yield way


def versions(app: App, stream: str) -> list[int]:
    return [event.version for event in app.journal.read_stream(stream)]


class Anything:
    def __init__(self, **_: Any) -> None: ...


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row, class_row(Anything)])
def test_row_factories_of_the_caller(app: App, postgres_url: str, row_factory: Any) -> None:
    events = [NewEvent({}, type="Placed", id=uuid4())]
    with psycopg.connect(postgres_url, row_factory=row_factory) as connection:
        first = app.journal.append("order-1", events, connection=connection)
        assert app.journal.append("order-1", events, connection=connection) == first
        with pytest.raises(ConcurrencyError):
            app.journal.append("order-1", EVENTS, expected_version=7, connection=connection)
        assert connection.row_factory is row_factory
    assert versions(app, "order-1") == [1]


@pytest.mark.parametrize("factory", [psycopg.ClientCursor, psycopg.RawCursor])
def test_cursors_of_the_caller(app: App, postgres_url: str, factory: Any) -> None:
    with psycopg.connect(postgres_url, cursor_factory=factory) as connection:
        app.journal.append("order-1", EVENTS, expected_version=0, connection=connection)
    assert versions(app, "order-1") == [1]


def test_a_connection_that_returns_bytes_for_text(app: App, postgres_url: str) -> None:
    events = [NewEvent({"name": "zoë"}, type="Placed", id=uuid4())]
    with psycopg.connect(postgres_url, client_encoding="sql_ascii") as connection:
        first = app.journal.append("zoë", events, connection=connection)
        assert app.journal.append("zoë", events, connection=connection) == first
    assert [event.data for event in app.journal.read_stream("zoë")] == [{"name": "zoë"}]


@pytest.mark.parametrize("make", DRIVERS)
def test_a_database_without_holdfast_tables(
    app: App, postgres_server: Databases, make: Callable[[str], Way]
) -> None:
    empty = postgres_server.create_database()
    with opened(make(empty)) as way, undone(way.transaction()):
        way.execute("CREATE TABLE business (name text)")
        with pytest.raises(AppendError, match="sees no holdfast tables"):
            way.append(app.journal, "order-1", EVENTS)
    assert app.journal.head() == 0
    postgres_server.drop_database(empty)


def test_another_search_path(app: App, way: Way) -> None:
    with undone(way.transaction()):
        way.execute("SET LOCAL search_path TO pg_temp")
        with pytest.raises(AppendError, match=r"sees no holdfast tables.*search_path"):
            way.append(app.journal, "order-1", EVENTS)
    with way.transaction():
        way.append(app.journal, "order-1", EVENTS)
    assert versions(app, "order-1") == [1]


def test_a_transaction_that_has_failed(app: App, way: Way) -> None:
    with undone(way.transaction()):
        with suppress(Exception):
            way.execute("SELECT 1 / 0")
        with pytest.raises(AppendError, match="failed before; roll the transaction back"):
            way.append(app.journal, "order-1", EVENTS)
    assert app.journal.head() == 0


def test_a_transaction_that_may_not_write(app: App, way: Way) -> None:
    with undone(way.transaction()):
        way.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(AppendError, match="read-only"):
            way.append(app.journal, "order-1", EVENTS)
    assert app.journal.head() == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("expected_version", [None, 1])
def test_a_snapshot_older_than_another_append(
    app: App, way: Way, level: str, expected_version: int | None
) -> None:
    """The transaction can't see the other append, so it can't be told its version: run it again."""
    app.journal.append("order-1", EVENTS)
    with undone(way.transaction()):
        way.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        way.execute("SELECT count(*) FROM holdfast_event")
        app.journal.append("order-1", EVENTS)
        with pytest.raises(StoreConflict, match="run it again from its start"):
            way.append(app.journal, "order-1", EVENTS, expected_version=expected_version)
    assert versions(app, "order-1") == [1, 2]

    with way.transaction():
        way.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        if expected_version == 1:
            with pytest.raises(ConcurrencyError):
                way.append(app.journal, "order-1", EVENTS, expected_version=1)
        way.append(app.journal, "order-1", EVENTS)
    assert versions(app, "order-1") == [1, 2, 3]


def test_ids_that_the_snapshot_does_not_show(app: App, way: Way) -> None:
    events = [NewEvent({}, type="Placed", id=uuid4())]
    with undone(way.transaction()):
        way.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        way.execute("SELECT count(*) FROM holdfast_event")
        first = app.journal.append("order-1", events)
        with pytest.raises(StoreConflict, match="run it again from its start"):
            way.append(app.journal, "order-1", events)
    with way.transaction():
        way.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert way.append(app.journal, "order-1", events) == first
    assert versions(app, "order-1") == [1]


def test_writers_at_every_level_number_a_stream_without_gap_or_double(
    app: App, postgres_url: str
) -> None:
    """Each repeats a refused transaction, as an application would, until its appends are in."""

    def write(level: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            done = 0
            while done < 20:
                try:
                    with connection.transaction():
                        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
                        connection.execute("SELECT count(*) FROM holdfast_event")
                        app.journal.append("shared", EVENTS * 2, connection=connection)
                    done += 1
                except (StoreConflict, psycopg.errors.SerializationFailure):
                    pass

    levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
    writers = [threading.Thread(target=write, args=(level,)) for level in levels]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert versions(app, "shared") == list(range(1, 3 * 20 * 2 + 1))


def test_a_deadlock_names_the_way_out(app: App, way: Way, postgres_url: str) -> None:
    """Two transactions append to two streams in opposite order; the server picks one of them."""
    refused: list[StoreConflict] = []

    def close_the_circle() -> None:
        wait_until(lambda: _waits(postgres_url), 30, "the first transaction to wait")
        try:
            app.journal.append("a", EVENTS, connection=other)
        except StoreConflict as error:
            refused.append(error)
            other.rollback()

    with psycopg.connect(postgres_url) as other, suppress(StoreConflict), way.transaction():
        way.append(app.journal, "a", EVENTS)
        app.journal.append("b", EVENTS, connection=other)
        closing = threading.Thread(target=close_the_circle)
        closing.start()
        try:
            way.append(app.journal, "b", EVENTS)
        except StoreConflict as error:
            refused.append(error)
            raise
        finally:
            closing.join()

    (message,) = map(str, refused)
    assert "deadlock detected; roll the transaction back and run it again" in message
    assert versions(app, "a") == [1]
    assert versions(app, "b") == [1]


def _waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        row = connection.execute(sql).fetchone()
    return row is not None and row[0] > 0


def test_a_lock_that_is_not_had_in_time(app: App, way: Way, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        app.journal.append("order-1", EVENTS, connection=other)
        with undone(way.transaction()):
            way.execute("SET LOCAL lock_timeout = '10ms'")
            with pytest.raises(StoreConflict, match="lock timeout; roll the transaction back"):
                way.append(app.journal, "order-1", EVENTS)
    assert versions(app, "order-1") == [1]


@pytest.mark.parametrize("before", ["commit", "rollback", "savepoint"])
def test_readers_wait_for_every_transaction_of_a_connection(
    app: App, way: Way, before: str
) -> None:
    """The lock that holds readers back goes with its transaction or savepoint: taken anew each."""
    if before == "commit":
        with way.transaction():
            way.append(app.journal, "first", EVENTS)
    elif before == "rollback":
        with undone(way.transaction()):
            way.append(app.journal, "first", EVENTS)
    with way.transaction():
        way.execute("SELECT 1")
        if before == "savepoint":
            with undone(way.savepoint()):
                way.append(app.journal, "first", EVENTS)
        way.append(app.journal, "slow", EVENTS)
        app.journal.append("quick", EVENTS)
        assert [event.stream for event in app.journal.read() if event.stream != "first"] == []
    streams = [event.stream for event in app.journal.read() if event.stream != "first"]
    assert streams == ["slow", "quick"]


def test_a_thousand_appends_to_one_stream_in_one_transaction(app: App, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for version in range(1_000):
            app.journal.append("order-1", EVENTS, expected_version=version, connection=connection)
    assert versions(app, "order-1") == list(range(1, 1_001))


def test_a_thousand_streams_in_one_transaction(app: App, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for number in range(1_000):
            app.journal.append(f"order-{number}", EVENTS, connection=connection)
    assert len(list(app.journal.read())) == 1_000
