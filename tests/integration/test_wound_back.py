"""Rows that are there are found: a checkpoint that was set back does not count events twice."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from holdfast import DELETE, App, Event, TableProjection, on
from tests.support.sql import execute


@dataclass
class Credited:
    amount: int


@dataclass
class Closed:
    pass


@dataclass
class Balance:
    account: str
    amount: int = 0


class Balances(TableProjection[Balance]):
    called: ClassVar[list[int]] = []

    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        self.called.append(event.position)
        row.amount += event.data.amount

    @on(Closed)
    def closed(self, row: Balance, event: Event[Closed]) -> Any:
        return DELETE


def test_rows_that_have_seen_an_event_pass_it_over(store_url: str) -> None:
    with App(store_url) as app:
        app.projection(Balances)
        app.journal.append("a", [Credited(1), Credited(2)])
        app.journal.append("b", [Credited(10)])
        app.catch_up()
        execute(store_url, "UPDATE holdfast_checkpoint SET position = 1")
        app.journal.append("a", [Credited(4)])
        app.catch_up()
        assert sorted(execute(store_url, "SELECT account, amount, _position FROM balances")) == [
            ("a", 7, 4),
            ("b", 10, 3),
        ]


@pytest.mark.parametrize("live", [False, True])
def test_streams_that_come_again_from_their_beginning_are_known(
    store_url: str, *, live: bool
) -> None:
    with App(store_url) as app:
        app.projection(Balances)
        first = app.journal.append("a", [Credited(1), Credited(2)])
        with app.running() if live else nullcontext():
            if live:
                app.wait_for(Balances, first.position)
            else:
                app.catch_up()
            Balances.called.clear()
            execute(
                store_url, "UPDATE holdfast_checkpoint SET position = 0, revision = revision + 1"
            )
            last = app.journal.append("b", [Credited(10)])
            if live:
                app.wait_for(Balances, last.position)
            else:
                app.catch_up()
        assert set(Balances.called) == {3}
        assert sorted(execute(store_url, "SELECT account, amount FROM balances")) == [
            ("a", 3),
            ("b", 10),
        ]
