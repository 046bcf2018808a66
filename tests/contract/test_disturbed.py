"""People who change the queue without a pause: the projection gets on all the same."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from holdfast import (
    App,
    Event,
    Park,
    Policy,
    Projection,
    QueueSelection,
    TableProjection,
    Tx,
    on,
)
from holdfast.testing.contracts.samples import Counted, status_of

SICK = QueueSelection(lane="sick")
BEHIND = QueueSelection(lane="other", status="pending")
PATIENCE_SECONDS = 0.3
"""For a change that may have to wait for the handler that waits for it."""
TIRED = 5
"""So many disturbed attempts of one event, and the people give up."""


class People:
    """Somebody who resolves an event of another lane whenever a handler is at work."""

    def __init__(self, url: str) -> None:
        self.tried: list[int] = []
        self.is_busy = False
        self.is_sick = True
        self._asked, self._done = threading.Event(), threading.Event()
        self._end = False
        self._app = App(url)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def handle(self, n: int) -> None:
        self.tried.append(n)
        if n == 9:
            raise ValueError(n)
        if self.is_busy and self.tried.count(n) <= TIRED:
            self._done.clear()
            self._asked.set()
            self._done.wait(PATIENCE_SECONDS)
        if n == 1 and self.is_sick:
            raise ValueError(n)

    def close(self) -> None:
        self._end = True
        self._asked.set()
        self._thread.join()
        self._app.close()

    def _work(self) -> None:
        while self._asked.wait() and not self._end:
            self._asked.clear()
            self._app.queue.resolve(BEHIND, by="somebody", limit=1)
            self._done.set()


@pytest.fixture
def people(store_url: str) -> Iterator[People]:
    people = People(store_url)
    yield people
    people.close()


@dataclass
class Tally:
    stream: str
    n: int = 0


def folded(people: People) -> type[Any]:
    class Tallies(TableProjection[Tally]):
        table, row, key_columns = "tallies", Tally, ("stream",)

        @on(Counted)
        def counted(self, row: Tally, event: Event[Counted]) -> None:
            people.handle(event.data.n)
            row.n += 1

    return Tallies


def handled(people: People) -> type[Any]:
    class Tallies(Projection):
        tables: ClassVar = {"tallies": "CREATE TABLE tallies (n bigint)"}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            people.handle(event.data.n)
            tx.execute(f"INSERT INTO tallies VALUES ({event.data.n:d})")

    return Tallies


@pytest.fixture(params=[folded, handled])
def app(request: pytest.FixtureRequest, store_url: str, people: People) -> Iterator[App]:
    with App(store_url) as app:
        app.projection(policy=Policy(on_error=Park()))(request.param(people))
        app.journal.append("sick", [Counted(1), Counted(2)])
        app.journal.append("other", [Counted(9)] * 30)
        app.catch_up()
        assert people.tried == [1, 9]
        people.tried.clear()
        people.is_busy = True
        yield app


def test_a_batch_is_done_in_vain_once(app: App, people: People) -> None:
    app.journal.append("well", [Counted(3)])
    app.catch_up()
    assert people.tried.count(3) <= 2
    assert status_of(app, "tallies").closed_lanes == 2


def test_a_drain_is_done_in_vain_once(app: App, people: People) -> None:
    people.is_sick = False
    app.queue.requeue(SICK, by="me")
    app.catch_up()
    assert people.tried.count(1) <= 2
    assert people.tried.count(2) <= 2
    assert status_of(app, "tallies").closed_lanes == 1
