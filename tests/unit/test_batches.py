"""Wherever a batch begins and ends, the rows are the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from holdfast import DELETE, App, Event, Projection, ProjectionFaulted, TableProjection, Tx, on
from holdfast.core import apply, folding, reading
from holdfast.testing.contracts.samples import fetch

STREAMS = 7
EVENTS = 60


@dataclass
class Counted:
    n: int


@dataclass
class Sum:
    name: str
    amount: int = 0


class Sums(TableProjection[Sum]):
    """The sum of each stream; every 17th number deletes the row."""

    @on(Counted)
    def counted(self, row: Sum, event: Event[Counted]) -> object:
        row.amount += event.data.n
        return DELETE if event.data.n % 17 == 0 else None


class Log(Projection):
    tables: ClassVar = {"log": "CREATE TABLE log (n INTEGER)"}

    @on(Counted)
    def counted(self, event: Event[Counted], tx: Tx) -> None:
        if event.data.n == EVENTS:
            raise ValueError("one too many")
        tx.execute("INSERT INTO log VALUES (?)", (event.data.n,))


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        app.projection(Sums)
        app.projection(Log)
        yield app


LIMITS: dict[str, dict[str, float]] = {
    "as they are": {},
    "chunks of one event": {"CHUNK_EVENTS": 1},
    "chunks of three events": {"CHUNK_EVENTS": 3},
    "batches of one event": {"CHUNK_EVENTS": 1, "BATCH_EVENTS": 1},
    "batches of seven events": {"CHUNK_EVENTS": 3, "BATCH_EVENTS": 7},
    "batches of few bytes": {"BATCH_BYTES": 40},
    "a transaction for each event": {"SLICE_SECONDS": 0.0},
    "room for two rows": {"BATCH_EVENTS": 5, "CHUNK_EVENTS": 5, "MAX_CACHED_ROWS": 2},
    "room for no row": {"BATCH_EVENTS": 5, "CHUNK_EVENTS": 5, "MAX_CACHED_ROWS": 0},
}


@pytest.mark.parametrize("limits", LIMITS)
def test_the_rows_are_the_same_whatever_the_limits(
    app: App, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LIMITS[limits].items():
        owner = next(module for module in (reading, apply, folding) if hasattr(module, name))
        monkeypatch.setattr(owner, name, value)
    for n in range(EVENTS):
        app.journal.append(f"s{n % STREAMS}", [Counted(n)])
    app.catch_up()
    assert dict(fetch(app, "SELECT name, amount FROM sums")) == _expected_sums(EVENTS)
    assert fetch(app, "SELECT n FROM log") == [(n,) for n in range(EVENTS)]

    app.journal.append("s0", [Counted(n) for n in range(EVENTS + 5)])
    with pytest.raises(ProjectionFaulted, match="one too many"):
        app.catch_up()
    assert fetch(app, "SELECT n FROM log") == [(n,) for n in (*range(EVENTS), *range(EVENTS))]
    by_name = {status.projection: status for status in app.status()}
    assert by_name["log"].events_processed == 2 * EVENTS
    assert by_name["sums"].events_processed == 2 * EVENTS + 5


def _expected_sums(events: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for n in range(events):
        name = f"s{n % STREAMS}"
        sums[name] = sums.get(name, 0) + n
        if n % 17 == 0:
            del sums[name]
    return sums
