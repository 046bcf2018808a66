"""What a handler finds in a row does not depend on where a batch has ended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import App, Event, TableProjection, on
from holdfast.model.rows.column_values import in_jsonb_order
from tests.support.sql import execute

KEYS = st.characters(codec="utf-8", exclude_characters="\0")


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
    counts: dict[str, int] = field(default_factory=dict)
    shown: str = ""


class Rows(TableProjection[Row]):
    @on(Set)
    def set(self, row: Row, event: Event[Set]) -> None:
        row.at = event.data.at
        row.weight = 5
        row.colour = Colour.RED
        row.parts += [(1, 2), {"zebra": {"yak": 1, "ox": 2}}]
        row.counts |= dict.fromkeys(("zebra", "élan", "yak", "ox", "gnu"), 1)

    @on(Shown)
    def shown(self, row: Row, event: Event[Shown]) -> None:
        assert row.at is not None
        row.shown = f"{row.at.date()} {row.weight!r} {row.colour!r} {row.parts!r} {[*row.counts]}"


@pytest.mark.parametrize("batches", [1, 2])
def test_one_batch_or_two_give_the_same_row(store_url: str, batches: int) -> None:
    with App(store_url) as app:
        app.projection(Rows)
        app.journal.append("a", [Set(datetime.fromisoformat("2026-01-02T01:00:00+02:00"))])
        if batches == 2:
            app.catch_up()
        app.journal.append("a", [Shown()])
        app.catch_up()
    shown = (
        "2026-01-01 5.0 'red' [[1, 2], {'zebra': {'ox': 2, 'yak': 1}}] "
        "['ox', 'gnu', 'yak', 'zebra', 'élan']"
    )
    assert execute(store_url, "SELECT shown FROM rows") == [(shown,)]


@given(
    value=st.recursive(
        st.integers(-9, 9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(KEYS), inner),
    )
)
def test_objects_have_their_keys_as_postgresql_keeps_them(
    shared_postgres_url: str, value: Any
) -> None:
    with psycopg.connect(shared_postgres_url) as connection:
        stored = connection.execute("SELECT CAST(%s AS jsonb)", (json.dumps(value),)).fetchone()
    assert stored is not None
    assert json.dumps(stored[0]) == json.dumps(in_jsonb_order(value))
