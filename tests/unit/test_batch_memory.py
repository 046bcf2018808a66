"""A batch that is folded keeps its rows, and not its events; of what has to wait, not too much."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from holdfast import (
    App,
    Event,
    Park,
    Policy,
    Projection,
    Skip,
    SqlProjection,
    TableProjection,
    Tx,
    on,
)
from tests.contracts.samples import fetch
from tests.support.limits import set_limits
from tests.support.memory import peak_bytes

EVENTS = 4_000
TEXT = "x" * 1_000


@dataclass
class Noted:
    text: str


@dataclass
class Count:
    stream: str
    events: int = 0


class Counts(TableProjection[Count]):
    @on(Noted)
    def noted(self, row: Count, event: Event[Noted]) -> None:
        if not event.data.text:
            raise ValueError("nothing is noted")
        row.events += 1


class Lines(Projection):
    @on(Noted)
    def noted(self, event: Event[Noted], tx: Tx) -> None:
        if not event.data.text:
            raise ValueError("nothing is noted")


class Sets(SqlProjection):
    tables: ClassVar = {"lengths": "CREATE TABLE lengths (n integer CHECK (n > 0))"}
    events = (Noted,)
    sql = "INSERT INTO lengths SELECT length(text) FROM batch"


def test_an_event_that_failed_does_not_keep_those_behind_it() -> None:
    with App("sqlite:///:memory:") as app:
        set_limits(app, chunk_events=200)
        app.projection(policy=Policy(on_error=Skip()))(Counts)
        append(app, "a", "b")
        assert peak_bytes(app.catch_up) < EVENTS * len(TEXT) / 2


@pytest.mark.parametrize("projection", [Counts, Lines, Sets])
def test_what_waits_behind_an_event_is_not_kept_either(projection: type) -> None:
    with App("sqlite:///:memory:") as app:
        set_limits(app, chunk_events=200, fold_bytes=2**18, batch_bytes=2**18)
        app.projection(policy=Policy(on_error=Park()))(projection)
        append(app, "a", "a")
        assert peak_bytes(app.catch_up) < EVENTS * len(TEXT) / 2
        assert fetch(app, "SELECT count(*) FROM holdfast_queue") == [(EVENTS + 1,)]


def test_metadata_counts_as_payloads_do() -> None:
    with App("sqlite:///:memory:") as app:
        set_limits(app, chunk_events=200, batch_bytes=2**18)
        app.projection(Lines)
        for _ in range(0, EVENTS, 1_000):
            app.journal.append("a", [Noted("x")] * 1_000, metadata={"text": TEXT})
        assert peak_bytes(app.catch_up) < EVENTS * len(TEXT) / 2


def append(app: App, stream: str, next_stream: str) -> None:
    """An event that fails, and many behind it."""
    app.journal.append(stream, [Noted("")])
    for _ in range(0, EVENTS, 1_000):
        app.journal.append(next_stream, [Noted(TEXT)] * 1_000)
