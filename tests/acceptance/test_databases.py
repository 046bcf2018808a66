"""Databases that are wrong, away, too new or foreign: one clear line, and nothing changed."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.command import Place

CLOSED = "127.0.0.1:1"
"""An address without a server."""

SECRET = "s3cr3t-p4ss"
COMMANDS = (
    ("status", "bank:app"),
    ("migrate", "bank:app"),
    ("journal", "append", "bank:app", "s", "--type", "T", "--data", "{}"),
    ("journal", "import", "bank:app", "-"),
    ("reset", "bank:app", "ledger", "--yes"),
)
URLS = {
    "": "the database URL is empty",
    "bank.db": "can't read the database URL 'bank.db'",
    "mysql://root@db/bank": "can't read the database URL 'mysql://root@db/bank'",
    "sqlite://bank.db": "use sqlite:///path/to/file.db",
    "postgresql+asyncpg://me@db/bank": "names another library's driver",
}


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Place]:
    """A place whose database a test names by itself."""
    place = Place(tmp_path / "place", "sqlite:///unused.db")
    yield place
    place.close()


@pytest.mark.parametrize("url", URLS)
def test_a_wrong_url(at: Place, url: str) -> None:
    assert URLS[url] in at.run("status", "bank:app", BANK_URL=url).error


def test_a_server_that_is_away(at: Place) -> None:
    url = f"postgresql://me:{SECRET}@{CLOSED}/bank"
    line = b'{"stream":"s","type":"T","data":{}}'
    for command in COMMANDS:
        error = at.run(*command, stdin=line, BANK_URL=url).error
        assert error.startswith(f"postgresql://me:***@{CLOSED}/bank: connection failed")
        assert SECRET not in error


SECRET_URLS = (
    f"postgresql://me:{SECRET}@{CLOSED}/bank",
    f"postgresql://{CLOSED}/bank?user=me&password={SECRET}",
    f"postgresql://me:{SECRET}/with-a-slash@{CLOSED}/bank",
    f"postgresql://me:{SECRET}@{CLOSED}/bank?no_such_option=1",
    f"me:{SECRET}@{CLOSED}/bank",
)


@pytest.mark.parametrize("url", SECRET_URLS)
def test_a_password_is_never_shown(at: Place, url: str) -> None:
    """Not in the error, and not with -v either, where tracebacks quote the module's lines."""
    at.write("plain.py", f"from holdfast import *\napp = App({url!r}); app.journal.head()\n")
    for refused in (
        at.run("status", "bank:app", "-v", BANK_URL=url),
        at.run("status", "plain:app", "-v"),
    ):
        assert refused.code == 1
        assert SECRET not in refused.out + refused.err


def test_run_shows_no_password_and_stops_after_its_maximum_of_failures(at: Place) -> None:
    text = (at.folder / "bank.py").read_text()
    poll = "@app.projection(poll=Poll(max_consecutive_failures=2))"
    text = text.replace("@app.projection\n", f"{poll}\n").replace("App, ", "App, Poll, ", 1)
    at.write("bank.py", text)
    worker = at.start("run", "bank:app", "-v", BANK_URL=SECRET_URLS[0])
    assert worker.wait() == 3
    said = "\n".join([*worker.out, *worker.err])
    assert f"running 2 projections on postgresql://me:***@{CLOSED}/bank" in said
    assert said.count("store unavailable, trying again") == 2
    assert "ended; faulted: balances, ledger" in worker.err[-1]
    assert SECRET not in said


def test_a_database_that_the_server_does_not_have(at: Place, postgres_url: str) -> None:
    url = f"{postgres_url}_not_there"
    assert "does not exist" in at.run("status", "bank:app", BANK_URL=url).error


def test_a_folder_that_is_not_there(at: Place) -> None:
    error = at.run("status", "bank:app", BANK_URL="sqlite:///nowhere/bank.db").error
    assert "nowhere is not there; make it first" in error


def test_a_file_that_is_no_database(at: Place) -> None:
    at.write("letter.db", "Dear reader, " * 100)
    error = at.run("status", "bank:app", BANK_URL="sqlite:///letter.db").error
    assert "letter.db" in error
    assert "not a database" in error
    assert (at.folder / "letter.db").read_text() == "Dear reader, " * 100


def test_a_newer_schema_is_left_alone(any_place: Place) -> None:
    any_place.ok("migrate", "bank:app")
    _execute(any_place.url, "UPDATE holdfast_schema SET version = 99")
    before = any_place.contents()
    line = b'{"stream":"s","type":"T","data":{}}'
    for command in (*COMMANDS, ("run", "bank:app")):
        error = any_place.run(*command, stdin=line).error
        assert error.startswith("the database has holdfast schema 99, this code knows up to")
        assert any_place.contents() == before


def test_a_foreign_table_with_the_name_of_ours(any_place: Place) -> None:
    _execute(any_place.url, "CREATE TABLE holdfast_event (mine integer)")
    before = any_place.contents()
    error = any_place.run("migrate", "bank:app").error
    assert "a table holdfast_event that is not holdfast's" in error
    assert any_place.contents() == before


def _execute(url: str, statement: str = "", *, sqlite: str = "", postgres: str = "") -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement or sqlite)
            connection.commit()
    else:
        with psycopg.connect(url) as server:
            server.execute((statement or postgres).encode())
