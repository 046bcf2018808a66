"""Rows in memory: as many as there is room for, and the same rows whatever the room."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from holdfast import DELETE, App, Event, NewEvent, Poll, TableProjection, on
from holdfast.runtime.engines.fold import TableEngine
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.transaction import Transaction
from tests.contracts.samples import fetch
from tests.support.limits import set_limits
from tests.support.memory import peak_bytes

TEXT_CHARACTERS = 20_000
DOCUMENTS = 1_000


@dataclass
class Document:
    name: str
    text: str = ""
    seal: bytes | None = None
    lines: list[str] = field(default_factory=list)


class ByStream(TableProjection[Document]):
    """The last text of each document, and a line for each event since it was begun."""

    @on("Written")
    def written(self, row: Document, event: Event[Any]) -> None:
        row.text = event.data["text"]
        row.seal = row.text[:2].encode() if len(row.lines) % 2 else None
        row.lines.append(f"{event.position}")

    @on("Burnt")
    def burnt(self, row: Document, event: Event[Any]) -> Any:
        return DELETE


class ByName(ByStream):
    def key(self, event: Event[Any]) -> str:
        name: str = event.data["name"]
        return name


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        for kind in (ByStream, ByName):
            app.projection(poll=Poll(interval_seconds=0.001))(kind)
        yield app


ROOMS: dict[str, dict[str, int]] = {
    "as it is": {},
    "none": {"cached_bytes": 0, "changed_bytes": 0, "least_rows": 0},
    "a few rows": {"cached_bytes": 200, "changed_bytes": 400, "least_rows": 3},
    "loaded one by one": {"cached_rows": 4, "loaded_bytes": 1, "first_loaded_rows": 1},
    "loaded in threes": {"cached_bytes": 0, "least_rows": 0, "first_loaded_rows": 3},
}


@pytest.mark.parametrize("room", ROOMS)
def test_rows_are_the_same_whatever_the_room(app: App, room: str) -> None:
    set_limits(app, chunk_events=40, **ROOMS[room])
    chance, expected = Random(5), dict[str, tuple[str, list[str]]]()
    for part in range(3):
        for n in range(150):
            stream, name = f"s{chance.randrange(20)}", f"n{chance.randrange(20)}"
            kind = "Burnt" if chance.random() < 0.1 else "Written"
            text = f"{part} {n} " + "x" * chance.randrange(60)
            appended = app.journal.append(stream, [NewEvent({"text": text, "name": name}, kind)])
            for key in (stream, name):
                if kind == "Burnt":
                    expected.pop(key, None)
                else:
                    lines = [*expected.get(key, ("", []))[1], str(appended.position)]
                    expected[key] = text, lines
        app.catch_up()
        rows = "SELECT name, text, lines FROM"
        stored = fetch(app, f"{rows} by_stream UNION {rows} by_name")
        assert {name: (text, lines) for name, text, lines in stored} == {
            name: (text, _as_json(lines)) for name, (text, lines) in expected.items()
        }


def test_large_rows_leave_the_memory() -> None:
    """They come from events, and then from the table."""
    with App("sqlite:///:memory:") as app:
        set_limits(app, cached_bytes=2**20, changed_bytes=3 * 2**20, batch_bytes=2**20)
        app.projection(ByName)
        _write_and_burn(app)


def _write_and_burn(app: App) -> None:
    for start in range(0, DOCUMENTS, 100):
        app.journal.append(
            f"s{start}",
            [
                NewEvent({"text": f"{n}{'x' * TEXT_CHARACTERS}", "name": f"n{n}"}, "Written")
                for n in range(start, start + 100)
            ],
        )
    assert peak_bytes(app.catch_up) < DOCUMENTS * TEXT_CHARACTERS / 2
    for n in range(DOCUMENTS):
        app.journal.append(f"s{n}", [NewEvent({"text": "", "name": f"n{n}"}, "Burnt")])
    assert peak_bytes(app.catch_up) < DOCUMENTS * TEXT_CHARACTERS / 2
    assert fetch(app, "SELECT count(*) FROM by_name") == [(0,)]


def test_one_large_row_is_not_written_for_each_event(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(app, changed_bytes=1_000)
    written, advance = [], TableEngine.advance

    def count(
        self: TableEngine, work: Transaction | None, checkpoint: Checkpoint, to: Advance
    ) -> Checkpoint:
        written.append(to.position)
        return advance(self, work, checkpoint, to)

    monkeypatch.setattr(TableEngine, "advance", count)
    for _ in range(50):
        app.journal.append("s", [NewEvent({"text": "x" * 2_000, "name": "n"}, "Written")])
    app.catch_up()
    assert written == [50, 50]


def _as_json(lines: list[str]) -> str:
    return "[" + ",".join(f'"{line}"' for line in lines) + "]"
