"""Joining on SQLite: one file, one writer, and connections set up in every way."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import App, AppendError, NewEvent, StoreConflict, StoreUnavailable
from tests.support.joining import (
    Django,
    SqlalchemyAsyncConnection,
    SqlalchemyConnection,
    Sqlite3,
    Way,
    opened,
    undone,
)

EVENTS = [NewEvent({}, type="Placed")]
IMPATIENT_SECONDS = 0.01


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def app(path: Path) -> Iterator[App]:
    with App(f"sqlite:///{path}") as app:
        app.migrate()
        yield app


@pytest.fixture
def raw(app: App, path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=IMPATIENT_SECONDS)) as raw:
        raw.execute("CREATE TABLE business (name TEXT)")
        yield raw


@pytest.fixture
def other(path: Path, raw: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Another process's connection: to SQLite's locks there is no difference."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        yield other


def _rows_as_dicts(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("row_factory", [sqlite3.Row, _rows_as_dicts, lambda *_: None])
@pytest.mark.parametrize("text_factory", [str, bytes, bytearray])
def test_row_and_text_factories_of_the_caller(
    app: App, raw: sqlite3.Connection, row_factory: Any, text_factory: Any
) -> None:
    raw.row_factory, raw.text_factory = row_factory, text_factory
    events = [NewEvent({"n": 1}, type="Placed", id=uuid4())]
    first = app.journal.append("order-1", events, connection=raw)
    assert app.journal.append("order-1", events, connection=raw) == first
    raw.commit()
    assert (raw.row_factory, raw.text_factory) == (row_factory, text_factory)
    assert app.journal.head() == first.position


def test_a_connection_that_begins_by_itself_is_in_the_callers_hands(
    app: App, raw: sqlite3.Connection
) -> None:
    app.journal.append("order-1", EVENTS, connection=raw)
    assert raw.in_transaction
    raw.rollback()
    assert app.journal.head() == 0


def test_a_link_to_the_file_is_the_file(app: App, path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with closing(sqlite3.connect(link)) as raw, raw:
        app.journal.append("order-1", EVENTS, connection=raw)
    assert app.journal.head() == 1


@pytest.mark.parametrize("make", [Sqlite3, SqlalchemyConnection, SqlalchemyAsyncConnection, Django])
def test_another_file_is_refused(app: App, path: Path, make: Callable[[str], Way]) -> None:
    elsewhere = path.with_name("elsewhere.db")
    with App(f"sqlite:///{elsewhere}") as other_app:
        other_app.migrate()
        with opened(make(f"sqlite:///{elsewhere}")) as way, way.transaction():
            with pytest.raises(AppendError, match=r"elsewhere\.db, the journal on .*journal\.db"):
                way.append(app.journal, "order-1", EVENTS)
            way.append(other_app.journal, "order-1", EVENTS)
        assert other_app.journal.head() == 1
    assert app.journal.head() == 0


def test_an_attached_journal_is_refused_because_two_files_dont_commit_together(
    app: App, path: Path
) -> None:
    with closing(sqlite3.connect(path.with_name("business.db"))) as raw:
        raw.execute("ATTACH ? AS journal", (str(path),))
        raw.execute("BEGIN")
        with pytest.raises(AppendError, match=r"business\.db, the journal on"):
            app.journal.append("order-1", EVENTS, connection=raw)
        raw.rollback()
    assert app.journal.head() == 0


@pytest.mark.parametrize("journal", ["file", "memory"])
def test_a_database_in_memory_is_another_one(app: App, journal: str) -> None:
    with App("sqlite:///:memory:") as in_memory, closing(sqlite3.connect(":memory:")) as raw:
        joined = app if journal == "file" else in_memory
        joined.migrate()
        with pytest.raises(AppendError, match="is on a database in memory, the journal on"):
            joined.journal.append("order-1", EVENTS, connection=raw)


def test_a_transaction_that_read_before_another_wrote(
    app: App, raw: sqlite3.Connection, other: sqlite3.Connection
) -> None:
    """SQLite refuses it at once, whatever the timeout is: its snapshot is out of date."""
    raw.execute("BEGIN")
    raw.execute("SELECT * FROM business").fetchall()
    other.execute("INSERT INTO business VALUES ('other')")
    with pytest.raises(StoreConflict, match=r"run it again from its start.*BEGIN IMMEDIATE"):
        app.journal.append("order-1", EVENTS, connection=raw)
    raw.rollback()

    raw.execute("BEGIN IMMEDIATE")
    assert app.journal.append("order-1", EVENTS, connection=raw).version == 1
    raw.commit()
    assert app.journal.head() == 1


@pytest.mark.parametrize("make", [SqlalchemyConnection, SqlalchemyAsyncConnection, Django])
def test_the_same_through_other_libraries(
    app: App, other: sqlite3.Connection, path: Path, make: Callable[[str], Way]
) -> None:
    with opened(make(f"sqlite:///{path}")) as way:
        with undone(way.transaction()):
            way.execute("SAVEPOINT reading")  # Of itself, sqlite3 begins with the first write.
            way.execute("SELECT * FROM business")
            other.execute("INSERT INTO business VALUES ('other')")
            with pytest.raises(StoreConflict, match="run it again from its start"):
                way.append(app.journal, "order-1", EVENTS)
        with way.transaction():
            assert way.append(app.journal, "order-1", EVENTS).version == 1
    assert app.journal.head() == 1


def test_another_writer_that_takes_too_long(
    app: App, raw: sqlite3.Connection, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreConflict, match="another connection writes to this SQLite file"):
        app.journal.append("order-1", EVENTS, connection=raw)
    raw.rollback()
    other.execute("COMMIT")
    with raw:
        app.journal.append("order-1", EVENTS, connection=raw)
    assert app.journal.head() == 1


def test_a_connection_that_may_not_write(app: App, path: Path) -> None:
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as raw,
        pytest.raises(StoreUnavailable, match="readonly database"),
    ):
        app.journal.append("order-1", EVENTS, connection=raw)
    assert app.journal.head() == 0
