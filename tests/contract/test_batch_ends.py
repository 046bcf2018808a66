"""What a handler finds in a row does not depend on where a batch has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import pytest

from holdfast import App, Event, TableProjection, on
from tests.support.sql import execute


@dataclass
class Set:
    at: datetime


@dataclass
class Shown:
    pass


class Colour(StrEnum):
    RED = "red"


@dataclass
class Row:
    stream: str
    at: datetime | None = None
    weight: float = 0.0
    colour: str = ""
    parts: list[Any] = field(default_factory=list)
    shown: str = ""


class Rows(TableProjection[Row]):
    @on(Set)
    def set(self, row: Row, event: Event[Set]) -> None:
        row.at = event.data.at
        row.weight = 5
        row.colour = Colour.RED
        row.parts.append((1, 2))

    @on(Shown)
    def shown(self, row: Row, event: Event[Shown]) -> None:
        assert row.at is not None
        row.shown = f"{row.at.date()} {row.weight!r} {row.colour!r} {row.parts!r}"


@pytest.mark.parametrize("batches", [1, 2])
def test_one_batch_or_two_give_the_same_row(store_url: str, batches: int) -> None:
    with App(store_url) as app:
        app.projection(Rows)
        app.journal.append("a", [Set(datetime.fromisoformat("2026-01-02T01:00:00+02:00"))])
        if batches == 2:
            app.catch_up()
        app.journal.append("a", [Shown()])
        app.catch_up()
    assert execute(store_url, "SELECT shown FROM rows") == [("2026-01-01 5.0 'red' [[1, 2]]",)]
