"""What only reads writes nothing: an empty database stays empty."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import App, HoldfastError, NewEvent, Projection, QueueSelection, SchemaError, on


@pytest.fixture
def app(quick_url: str) -> Iterator[App]:
    with closing(App(quick_url)) as app:

        @app.projection(delivery="outbox")
        class Mails(Projection):
            @on("*")
            def any(self, event: object, tx: object) -> None:
                pass

        yield app


def tables(url: str) -> list[str] | None:
    """The tables of a database; None if there is no file."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            sql = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            return [name for (name,) in connection.execute(sql).fetchall()]
    path = Path(url.removeprefix("sqlite:///"))
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


def test_nothing_is_made_by_reading(app: App, quick_url: str) -> None:
    before = tables(quick_url)
    assert not before
    assert not app.has_tables()
    assert app.status() == []
    (reason,) = app.explain("mails")
    assert (reason.kind, "no holdfast tables yet" in reason.text) == ("no_worker", True)
    assert (app.tables("mails"), app.audit()) == ([], [])
    assert {setting.override for setting in app.settings("mails")} == {None}
    assert (app.journal.head(), app.journal.stream_version("a")) == (0, 0)
    assert [*app.journal.read(), *app.journal.read_stream("a")] == []
    assert list(app.journal.tail(stop=lambda: True)) == []
    assert (app.queue.list(), app.queue.stats(), app.outbox.report()) == ([], [], [])
    assert app.queue.requeue(QueueSelection(), by="ann", dry_run=True).items == ()
    with pytest.raises(HoldfastError, match="no item 1"):
        app.queue.get(1)
    assert tables(quick_url) == before
    app.journal.append("a", [NewEvent({}, type="Added")])
    assert app.has_tables()
    assert [event.type for event in app.journal.read()] == ["Added"]


def test_nothing_is_registered_by_reading(app: App, quick_url: str) -> None:
    with closing(App(quick_url)) as other:
        other.migrate()
    assert app.status() == []
    assert app.outbox.report() == []


def test_a_tail_waits_for_the_journal(app: App) -> None:
    looks = 0

    def stop() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            app.journal.append("a", [NewEvent({}, type="Added")])
        return False

    assert next(iter(app.journal.tail(stop=stop))).type == "Added"


def test_tables_of_another_version_are_not_read(app: App, quick_url: str) -> None:
    with closing(App(quick_url)) as other:
        other.migrate()
        with other._database.writing() as connection:
            connection.script("UPDATE holdfast_schema SET version = 99")
    with pytest.raises(SchemaError, match="schema 99"):
        app.status()
