"""The first event of a stream: its row is not looked up where there can be none."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import DELETE, App, Event, Park, Policy, QueueSelection, TableProjection, on
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.sql.store.session import SqlSession
from tests.support.limits import set_limits
from tests.support.sql import execute

DUE_SECONDS = 0.3


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
    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        self.meet(event)
        row.amount += event.data.amount

    @on(Closed)
    def closed(self, row: Balance, event: Event[Closed]) -> Any:
        return DELETE

    def meet(self, event: Event[Credited]) -> None:
        """Is called with each event before it is applied."""


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """The keys of rows that were looked up."""
    keys: list[Key] = []
    load_rows = SqlSession.load_rows

    def load(self: SqlSession, table: TableSpec, wanted: Sequence[Key]) -> Any:
        keys.extend(wanted)
        return load_rows(self, table, wanted)

    monkeypatch.setattr(SqlSession, "load_rows", load)
    return keys


def test_streams_that_begin_are_looked_up_only_where_rows_may_be(
    store_url: str, looked_up: list[Key]
) -> None:
    with App(store_url) as app:
        set_limits(app, cached_rows=0, fold_events=2)
        app.projection(name="balances")(Balances)
        for stream in "ab":
            app.journal.append(stream, [Credited(1), Credited(2), Credited(4)])
        app.catch_up()
        # The first two of a, the last of a with the first of b, the last two of b.
        assert looked_up == [("a",), ("b",)]
        app.journal.append("c", [Credited(8)])
        app.catch_up()
        assert looked_up == [("a",), ("b",), ("c",)]
        assert sorted(execute(store_url, "SELECT account, amount FROM balances")) == [
            ("a", 7),
            ("b", 7),
            ("c", 8),
        ]


def test_a_row_that_came_from_the_queue_is_found(store_url: str) -> None:
    """The runner has seen the table empty; then a lane is drained whose events come once more."""
    fails, calls = True, list[int]()
    due = datetime.max.replace(tzinfo=UTC)

    class Slow(Balances):
        def meet(self, event: Event[Credited]) -> None:
            if event.stream == "a":
                calls.append(event.position)
                if fails:
                    raise ValueError("not yet")
            while event.stream == "b" and not fails and datetime.now(UTC) <= due:
                time.sleep(0.01)

    with App(store_url) as app:
        set_limits(app, cached_rows=0, fold_events=1)
        app.projection(name="balances", policy=Policy(on_error=Park()))(Slow)
        app.journal.append("b", [Credited(1), Closed()])
        app.journal.append("a", [Credited(1), Credited(10)])
        app.catch_up()
        assert len(app.queue.list()) == 2
        execute(store_url, "UPDATE holdfast_checkpoint SET position = 0, revision = revision + 1")
        fails, due = False, datetime.now(UTC) + timedelta(seconds=DUE_SECONDS)
        app.queue.mark_retrying(QueueSelection(projection="balances"), by="me", at=due)
        calls.clear()
        app.catch_up()
    assert calls == [3, 4]
    assert execute(store_url, "SELECT account, amount FROM balances") == [("a", 11)]
