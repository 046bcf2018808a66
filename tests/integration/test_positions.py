"""Positions that go back: a journal that was replaced, a sequence behind it, another file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from holdfast import App, Event, SchemaError, StoreUnavailable, TableProjection, on
from holdfast.errors import HoldfastError, ProjectionFaulted
from holdfast.runtime.signals import PollFailed
from holdfast.runtime.wake import WakeSignal
from tests.contracts.samples import eventually
from tests.support.sql import execute


@dataclass
class Credited:
    amount: int


@dataclass
class Balance:
    account: str
    amount: int = 0


class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        row.amount += event.data.amount


def open_app(url: str, *, shards: int = 1) -> App:
    app = App(url)
    app.projection(shards=shards)(Balances)
    return app


def cut_journal(url: str) -> None:
    """The journal becomes an empty one, which begins again at position 1."""
    execute(url, "DELETE FROM holdfast_event")
    if url.startswith("sqlite"):
        execute(url, "DELETE FROM sqlite_sequence WHERE name = 'holdfast_event'")
    else:
        execute(url, "ALTER SEQUENCE holdfast_event_position_seq RESTART")


@pytest.mark.parametrize("shards", [1, 2])
def test_a_journal_that_was_replaced_and_has_grown_past_the_checkpoint(
    store_url: str, shards: int
) -> None:
    with open_app(store_url, shards=shards) as app:
        app.journal.append("a", [Credited(1)] * 5)
        app.catch_up()
        cut_journal(store_url)
        app.journal.append("a", [Credited(1)] * 25)
        with pytest.raises(ProjectionFaulted, match=r"not in the journal any more.*holdfast reset"):
            app.catch_up()
        app.reset(Balances)
        app.catch_up()
        assert execute(store_url, "SELECT amount FROM balances") == [(25,)]


def test_a_journal_that_is_cut_under_a_worker(store_url: str) -> None:
    with open_app(store_url) as app:
        last = app.journal.append("a", [Credited(1)] * 5)
        with app.running() as running:
            app.wait_for(Balances, last.position)
            cut_journal(store_url)
            with pytest.raises(ProjectionFaulted):
                app.wait_for(Balances, last.position + 1)
            eventually(lambda: "ends at 0" in running.faulted.get("balances", ""))


def test_a_tail_of_a_journal_that_was_cut_or_replaced(store_url: str) -> None:
    with App(store_url) as app:
        app.journal.append("a", [Credited(1)] * 5)
        with pytest.raises(HoldfastError, match="ends at 5, not after 9"):
            next(app.journal.tail(after=9))
        tail = app.journal.tail(after=0)
        assert [next(tail).position for _ in range(5)] == [1, 2, 3, 4, 5]
        cut_journal(store_url)
        app.journal.append("a", [Credited(1)] * 25)
        with pytest.raises(HoldfastError, match="position 5 has another event"):
            next(tail)


def test_a_sequence_behind_the_journal_is_found_at_the_start(postgres_url: str) -> None:
    """As after a logical replication, which does not copy sequences."""
    with open_app(postgres_url) as app:
        app.journal.append("a", [Credited(1)] * 5)
        app.catch_up()
        execute(postgres_url, "DELETE FROM holdfast_event WHERE position = 3")
        execute(postgres_url, "ALTER SEQUENCE holdfast_event_position_seq RESTART")
        with pytest.raises(StoreUnavailable, match="setval"):  # It runs already.
            app.journal.append("a", [Credited(1)])
        with pytest.raises(ProjectionFaulted, match="setval"):
            app.catch_up()
    with open_app(postgres_url) as app:
        for use in (app.catch_up, lambda: app.journal.append("a", [Credited(1)])):
            with pytest.raises(SchemaError, match="setval") as caught:
                use()
        _, statement = str(caught.value).rsplit("run ", 1)
        execute(postgres_url, statement)
        assert app.journal.append("a", [Credited(1)]).position == 6
        app.catch_up()


def test_a_joined_append_finds_a_sequence_behind_the_journal(postgres_url: str) -> None:
    with App(postgres_url) as app:
        app.journal.append("a", [Credited(1)] * 5)
    execute(postgres_url, "ALTER SEQUENCE holdfast_event_position_seq RESTART")
    with (
        App(postgres_url) as app,
        psycopg.connect(postgres_url) as connection,
        pytest.raises(SchemaError, match="setval"),
    ):
        app.journal.append("b", [Credited(1)], connection=connection)


@pytest.fixture
def replaced(sqlite_url: str, tmp_path: Path) -> Iterator[tuple[App, Path]]:
    """An app whose file was replaced by a copy of it."""
    with open_app(sqlite_url) as app:
        app.journal.append("a", [Credited(1)])
        app.catch_up()
        file, copy = Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "copy.db"
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        copy.replace(file)
        yield app, file


def test_a_file_that_was_replaced_takes_no_append(replaced: tuple[App, Path]) -> None:
    app, file = replaced
    for use in (
        lambda: app.journal.append("a", [Credited(1)]),
        lambda: list(app.journal.read()),
        app.status,
    ):
        with pytest.raises(StoreUnavailable, match=r"was replaced.*restart"):
            use()
    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("SELECT count(*) FROM holdfast_event").fetchone() == (1,)
    with open_app(f"sqlite:///{file}") as again:
        again.journal.append("a", [Credited(1)])
        again.catch_up()


def test_a_worker_finds_that_its_file_was_replaced(sqlite_url: str, tmp_path: Path) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    heard: list[str] = []
    woken = WakeSignal()

    def listen(signal: object) -> None:
        if isinstance(signal, PollFailed):
            heard.append(signal.error)
            woken.notify()

    with open_app(sqlite_url) as app:
        app.listen(listen)
        last = app.journal.append("a", [Credited(1)])
        with app.running():
            app.wait_for(Balances, last.position)
            with closing(sqlite3.connect(tmp_path / "other.db")) as other:
                other.execute("CREATE TABLE x (n int)")
            (tmp_path / "other.db").replace(file)
            assert woken.wait(0, 10.0)
        assert "was replaced" in heard[0]
