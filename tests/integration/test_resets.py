"""Resets beside workers, also by another version of the code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any

import pytest

from holdfast import App, SchemaError, TableProjection, on
from tests.support.sql import execute


@dataclass
class Credited:
    amount: int


@dataclass
class Balance:
    account: str
    amount: int = 0


@dataclass
class Total:
    account: str
    total: int = 0


class Balances(TableProjection[Balance]):
    is_held = False
    arrived, go_on = Flag(), Flag()

    @on(Credited)
    def credited(self, row: Balance, event: Any) -> None:
        if self.is_held and event.position == 3:
            self.arrived.set()
            assert self.go_on.wait(5)
        row.amount += event.data.amount


class Totals(TableProjection[Total]):
    @on(Credited)
    def credited(self, row: Total, event: Any) -> None:
        row.total += event.data.amount


@pytest.fixture
def old(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        yield app


@pytest.fixture
def new(store_url: str, old: App) -> Iterator[App]:
    with App(store_url, events=old.events) as app:
        yield app


def test_a_busy_worker_is_fenced_by_a_reset_that_drops_its_table(
    store_url: str, old: App, new: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Balances, "is_held", True)
    Balances.arrived.clear()
    Balances.go_on.clear()
    old.projection(name="balances")(Balances)
    new.projection(name="balances")(Totals)
    last = old.journal.append("a", [Credited(1)] * 5)
    with old.running() as running:
        assert Balances.arrived.wait(10)
        assert new.reset("balances") == ["balances"]
        Balances.go_on.set()
        old.wait_for("balances", last.position)
        assert running.faulted == {}
    assert execute(store_url, "SELECT account, amount FROM balances") == [("a", 5)]


def test_an_outbox_worker_makes_its_table_again(store_url: str, old: App, new: App) -> None:
    old.projection(name="balances", delivery="outbox")(Balances)
    new.projection(name="balances", delivery="outbox")(Totals)
    with old.running() as running:
        first = old.journal.append("a", [Credited(1)])
        old.wait_for("balances", first.position)
        execute(store_url, "DELETE FROM holdfast_event")  # There is nothing to deliver again.
        assert new.reset("balances") == ["balances"]
        last = old.journal.append("b", [Credited(2)])
        old.wait_for("balances", last.position)
        assert running.faulted == {}
    assert execute(store_url, "SELECT account, amount FROM balances") == [("b", 2)]


def test_a_view_on_the_table_is_named(postgres_url: str) -> None:
    with App(postgres_url) as app:
        app.projection(name="balances")(Balances)
        app.journal.append("a", [Credited(1)])
        app.catch_up()
        execute(postgres_url, "CREATE VIEW rich AS SELECT account FROM balances WHERE amount > 0")
        assert app.reset("balances") == ["balances"]  # The same columns: the table stays.
        app.catch_up()
    with App(postgres_url, events=app.events) as app:
        app.projection(name="balances")(Totals)
        with pytest.raises(SchemaError, match=r"'balances'.*view rich depends.*Drop"):
            app.reset("balances")
        assert execute(postgres_url, "SELECT account FROM rich") == [("a",)]
        execute(postgres_url, "DROP VIEW rich")
        assert app.reset("balances") == ["balances"]
        app.catch_up()
        assert execute(postgres_url, "SELECT account, total FROM balances") == [("a", 1)]
