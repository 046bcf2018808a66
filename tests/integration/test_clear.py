"""`clear` of a projection: tables that others own are part of a reset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from holdfast import App, ConfigError, Projection, SqlProjection, TableProjection, Tx, on
from holdfast.errors import HoldfastError
from tests.support.sql import execute

INTO_NOTES = "INSERT INTO notes SELECT stream FROM batch"


@dataclass
class Credited:
    amount: int


@dataclass
class Balance:
    account: str
    amount: int = 0


class Clears:
    """Clears a table of others; fails where it is told to."""

    instead: ClassVar[str | None] = None

    def clear(self, tx: Tx) -> None:
        tx.execute("DELETE FROM notes")
        if self.instead is not None:
            tx.execute(self.instead)


class ClearsLater(Clears):
    async def clear(self, tx: Tx) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().clear(tx)


class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row: Balance, event: Any) -> None:
        row.amount += event.data.amount


class Handled(Projection):
    tables: ClassVar = {"own": "CREATE TABLE own (stream text)"}

    @on(Credited)
    def credited(self, event: Any, tx: Tx) -> None:
        tx.execute("INSERT INTO own SELECT 'a'")
        self.note(tx)

    def note(self, tx: Tx) -> None:
        tx.execute("insert into notes select 'a'")
        tx.execute(UPDATE)


UPDATE = "UPDATE only_in_a_constant AS o SET n = 1 WHERE false"


class Applied(SqlProjection):
    events = (Credited,)
    sql = (INTO_NOTES, 'DELETE FROM "others" WHERE stream IN (SELECT stream FROM batch)')


KINDS: dict[str, type[Any]] = {"table": Balances, "handler": Handled, "sql": Applied}


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    for statement in (
        "CREATE TABLE notes (stream text)",
        "CREATE TABLE others (stream text)",
        "CREATE TABLE only_in_a_constant (n integer)",
    ):
        execute(store_url, statement)
    with App(store_url) as app:
        yield app


@pytest.mark.parametrize("clears", [Clears, ClearsLater])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_clears_what_the_class_says(
    store_url: str, app: App, kind: str, clears: type
) -> None:
    projection = type("Cleared", (clears, KINDS[kind]), {"__orig_bases__": ()})
    app.projection(projection)
    app.journal.append("a", [Credited(1)] * 2)
    app.catch_up()
    if kind == "table":
        execute(store_url, "INSERT INTO notes VALUES ('a'), ('a')")
    app.reset("cleared")
    assert execute(store_url, "SELECT * FROM notes") == []
    assert app.tables_left("cleared") == []
    app.catch_up()
    assert len(execute(store_url, "SELECT * FROM notes")) == (0 if kind == "table" else 2)


@pytest.mark.parametrize("instead", ["COMMIT", "SELECT nonsense"])
def test_a_clear_that_fails_changes_nothing(store_url: str, app: App, instead: str) -> None:
    class Cleared(Clears, Handled):
        pass

    Cleared.instead = instead
    app.projection(Cleared)
    app.journal.append("a", [Credited(1)])
    app.catch_up()
    ends = instead == "COMMIT" and "postgres" in store_url
    what = "ended the transaction itself" if ends else "failed, so nothing was changed"
    with pytest.raises(HoldfastError, match=rf"'cleared': its clear\(\) has {what}"):
        app.reset("cleared")
    assert execute(store_url, "SELECT stream FROM own") == [("a",)]
    assert execute(store_url, "SELECT stream FROM notes") == ([] if ends else [("a",)])
    (status,) = app.status()
    assert (status.position, status.needs_reset) == ((0, True) if ends else (1, False))
    Cleared.instead = None
    app.reset("cleared")
    app.catch_up()
    assert execute(store_url, "SELECT stream FROM notes") == [("a",)]


@pytest.mark.parametrize(
    ("kind", "left"),
    [("table", []), ("handler", ["notes", "only_in_a_constant"]), ("sql", ["notes", "others"])],
)
def test_tables_that_a_reset_leaves(app: App, kind: str, left: list[str]) -> None:
    app.projection(name="kept")(KINDS[kind])
    assert app.tables_left("kept") == left


def test_a_clear_of_other_arguments_is_refused(app: App) -> None:
    class Wrong(Balances):
        def clear(self) -> None:  # type: ignore[override]
            pass

    with pytest.raises(ConfigError, match=r"clear must take \(self, tx\)"):
        app.projection(Wrong)
