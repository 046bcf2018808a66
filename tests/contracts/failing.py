"""A projection whose handlers fail as a test says, for the contracts about failing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.policy import Policy
from holdfast.model.projection import Projection, SqlProjection, TableProjection, Tx, on
from holdfast.runtime.signals import Signal
from holdfast.runtime.store.queue_items import QueueItem, QueueSelection
from tests.contracts.samples import WAIT_SECONDS, Counted, execute, fetch

SOON = Backoff(max_attempts=3, delay_seconds=0.001, max_delay_seconds=0.001)
LATER = Backoff(max_attempts=None, delay_seconds=3600, max_delay_seconds=3600)
ALL = QueueSelection()


@dataclass
class Sum:
    """A row that shows what was applied, how often and in which order."""

    stream: str
    seen: str = ""


class Poison:
    """What handlers fail at, and what the app has said about it."""

    def __init__(self, app: App) -> None:
        self._bad: set[int] = set()
        self.write: Callable[[set[int]], None] = lambda _: None
        """Tells it to statements, which can't see `bad`."""
        self.signals: list[Signal] = []
        self.changed = threading.Condition()
        app.listen(self._hear)

    @property
    def bad(self) -> set[int]:
        """The numbers that fail."""
        return self._bad

    @bad.setter
    def bad(self, numbers: set[int]) -> None:
        self._bad = numbers
        self.write(numbers)

    def check(self, n: int) -> None:
        if n in self.bad:
            raise ValueError(f"no {n}, please")

    def of(self, kind: type) -> list[Any]:
        """The signals of a kind."""
        return [signal for signal in self.signals if isinstance(signal, kind)]

    def wait_for(self, kind: type, count: int = 1) -> None:
        """Returns when so many signals of a kind have come."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(kind)) >= count, WAIT_SECONDS)

    def _hear(self, signal: Signal) -> None:
        with self.changed:
            self.signals.append(signal)
            self.changed.notify_all()


IN_PYTHON = pytest.mark.parametrize("register", ["table", "handler"], indirect=True)
"""For what statements can't do."""

REFUSING = """
INSERT INTO sums (stream, seen)
SELECT CASE WHEN n NOT IN (SELECT bad.n FROM bad) THEN stream END, ' ' || n
FROM batch ORDER BY position
"""
"""Refuses numbers that are bad, because a stream is NOT NULL."""


def _write_bad(app: App, numbers: set[int]) -> None:
    execute(app, "DELETE FROM bad")
    for n in numbers:
        execute(app, f"INSERT INTO bad VALUES ({n})")


class FailingSums:
    """A projection `sums` that fails at what a test names.

    Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own.
    """

    placeholder: ClassVar[str]

    @pytest.fixture
    def poison(self, app: App) -> Poison:
        return Poison(app)

    @pytest.fixture(params=["table", "handler", "sql"])
    def register(
        self, app: App, poison: Poison, request: pytest.FixtureRequest
    ) -> Callable[..., None]:
        """Registers the projection `sums` of a kind, with a policy."""
        mark = self.placeholder

        def register(policy: Policy) -> None:
            if request.param == "table":

                @app.projection(name="sums", policy=policy)
                class Sums(TableProjection[Sum]):
                    @on(Counted)
                    def counted(self, row: Sum, event: Event[Counted]) -> None:
                        row.seen += f" {event.data.n}"
                        poison.check(event.data.n)
            elif request.param == "sql":
                poison.write = lambda numbers: _write_bad(app, numbers)
                app.migrate()
                execute(app, "CREATE TABLE IF NOT EXISTS bad (n bigint)")
                poison.bad = poison.bad

                @app.projection(name="sums", policy=policy)
                class BySets(SqlProjection):
                    tables: ClassVar = {
                        "sums": "CREATE TABLE sums (stream text NOT NULL, seen text)"
                    }
                    events = (Counted,)
                    sql = REFUSING
            else:

                @app.projection(name="sums", policy=policy)
                class BySql(Projection):
                    tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

                    @on(Counted)
                    def counted(self, event: Event[Counted], tx: Tx) -> None:
                        values = (event.stream, f" {event.data.n}")
                        tx.execute(f"INSERT INTO sums VALUES ({mark}, {mark})", values)
                        poison.check(event.data.n)

        return register

    def seen(self, app: App) -> dict[str, list[int]]:
        """The numbers that were applied to each stream, in order."""
        found: dict[str, list[int]] = {}
        for stream, text in fetch(app, "SELECT stream, seen FROM sums"):
            found.setdefault(stream, []).extend(int(n) for n in text.split())
        return found

    def append(self, app: App, *numbers: int) -> None:
        """Each number goes to its own lane: 1, 11 and 21 to stream 1."""
        for n in numbers:
            app.journal.append(str(n % 10), [Counted(n)])

    def requeue_all(self, app: App) -> None:
        """Puts everything back, and catches up."""
        app.queue.requeue(ALL, by="me")
        app.catch_up()


def shown_items(app: App) -> list[tuple[str, str, int, int]]:
    """Status, lane, number and attempts of what is in the queue."""

    def shown(item: QueueItem) -> tuple[str, str, int, int]:
        return item.status, item.lane, int(item.data.strip('{"n: }')), item.attempts

    return [shown(item) for item in app.queue.list()]
