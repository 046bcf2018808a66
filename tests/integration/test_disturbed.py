"""Operators who change the queue without a pause: the projection gets on all the same."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psycopg
import pytest

from holdfast import (
    App,
    Event,
    HoldfastError,
    Park,
    Policy,
    Projection,
    QueueSelection,
    StoreUnavailable,
    TableProjection,
    Tx,
    on,
)
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.queue_items import ParkedEvent
from holdfast.sql.store import operator_transaction as changes
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import Counted, eventually, status_of

SICK = QueueSelection(lane="sick")
BEHIND = QueueSelection(lane="other", status="pending")
PATIENCE_SECONDS = 0.3
"""For a change that may have to wait for the handler that waits for it."""
TIRED = 5
"""So many disturbed attempts of one event, and the operators give up."""


class Operators:
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
def operators(store_url: str) -> Iterator[Operators]:
    operators = Operators(store_url)
    yield operators
    operators.close()


@dataclass
class Tally:
    stream: str
    n: int = 0


def folded(operators: Any) -> type[Any]:
    class Tallies(TableProjection[Tally]):
        table, row, key_columns = "tallies", Tally, ("stream",)

        @on(Counted)
        def counted(self, row: Tally, event: Event[Counted]) -> None:
            operators.handle(event.data.n)
            row.n += 1

    return Tallies


def handled(operators: Any) -> type[Any]:
    class Tallies(Projection):
        tables: ClassVar = {"tallies": "CREATE TABLE tallies (n bigint)"}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            operators.handle(event.data.n)
            tx.execute(f"INSERT INTO tallies VALUES ({event.data.n:d})")

    return Tallies


@pytest.fixture(params=[folded, handled])
def app(request: pytest.FixtureRequest, store_url: str, operators: Operators) -> Iterator[App]:
    with App(store_url) as app:
        app.projection(policy=Policy(on_error=Park()))(request.param(operators))
        app.journal.append("sick", [Counted(1), Counted(2)])
        app.journal.append("other", [Counted(9)] * 30)
        app.catch_up()
        assert operators.tried == [1, 9]
        operators.tried.clear()
        operators.is_busy = True
        yield app


def test_a_batch_is_not_done_in_vain_for_ever(app: App, operators: Operators) -> None:
    app.journal.append("well", [Counted(3)])
    app.catch_up()
    assert operators.tried.count(3) <= 3
    assert status_of(app, "tallies").closed_lanes == 2


def test_many_rounds_are_not_done_in_vain_for_ever(app: App, operators: Operators) -> None:
    with app.running():
        for n in range(10, 20):
            app.wait_for("tallies", app.journal.append("well", [Counted(n)]).position)
    assert len(operators.tried) <= 10 + 2


@pytest.mark.parametrize("change", ["queue", "pause", "append"])
def test_a_handler_changes_nothing_behind_its_transaction(store_url: str, change: str) -> None:
    """Held or not, it is refused, lest it wait for its own transaction, or be made twice."""
    errors: list[Exception] = []
    with App(store_url) as app:

        def handle(_: int) -> None:
            try:
                match change:
                    case "queue":
                        app.queue.requeue(QueueSelection(), by="a handler")
                    case "pause":
                        app.pause("folded_tallies", by="a handler")
                    case _:
                        app.journal.append("more", [Counted(0)])
            except HoldfastError as error:
                errors.append(error)

        operators = SimpleNamespace(handle=handle)
        for kind in (folded, handled):
            app.projection(name=f"{kind.__name__}_tallies")(kind(operators))
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        assert len(errors) == 2
        assert all("inside a handler" in str(error) for error in errors)
        assert app.journal.head() == 1


def test_a_drain_is_not_done_in_vain_for_ever(app: App, operators: Operators) -> None:
    operators.is_sick = False
    app.queue.requeue(SICK, by="me")
    app.catch_up()
    assert operators.tried.count(1) <= 3
    assert operators.tried.count(2) <= 3
    assert status_of(app, "tallies").closed_lanes == 1


def test_a_person_does_not_wait_for_ever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "CHANGE_SECONDS", 0.05)
    with App(postgres_url) as app, psycopg.connect(postgres_url) as worker:
        app.projection(name="tallies")(folded(SimpleNamespace(handle=lambda _: None)))
        app.catch_up()
        worker.execute("SELECT 1 FROM holdfast_checkpoint FOR UPDATE")
        with pytest.raises(StoreUnavailable, match=r"nothing was changed.* holdfast depose"):
            app.pause("tallies", by="me")
        worker.rollback()
        assert app.pause("tallies", by="me")


class Meddled(App):
    """An app whose sessions let a person in after each look at the head of a lane."""

    meddle: Any = None

    def _open_session(self) -> SqlSession:
        self._prepare()
        return MeddledSession(self)


class MeddledSession(SqlSession):
    def __init__(self, app: Meddled) -> None:
        super().__init__(app._database)
        self._app = app

    def lane_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> list[ParkedEvent]:
        found = super().lane_items(checkpoint, lane, limit)
        meddle, self._app.meddle = self._app.meddle, None
        if meddle is not None and limit == 2:  # One to be tried, and the one that follows.
            meddle(found[0].id)
        else:
            self._app.meddle = meddle
        return found


def test_who_is_blamed_is_who_was_tried(tmp_path: Path) -> None:
    """A person resolves a head between the look at it and the lock; the next one is the culprit."""
    url = f"sqlite:///{tmp_path}/meddled.db"
    sick = True
    with Meddled(url) as app, App(url) as other:

        @app.projection(policy=Policy(on_error=Park()))
        class Tallies(Projection):
            tables: ClassVar = {"tallies": "CREATE TABLE tallies (n integer PRIMARY KEY)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if sick and event.data.n == 1:
                    raise ValueError("sick")
                # Takes the whole transaction with it, if the number is there.
                n = 0 if event.data.n in (1, 2) else event.data.n
                tx.execute("INSERT OR ROLLBACK INTO tallies VALUES (?)", (n,))

        app.journal.append("z", [Counted(0)])
        app.journal.append("sick", [Counted(1), Counted(2), Counted(3)])
        app.catch_up()
        sick = False
        resolve = partial(other.queue.resolve, by="somebody")
        with app.running():
            app.wait_for("tallies", 4)
            app.pause("tallies", by="me")  # From now on the lane is read behind the lock.
            app.queue.requeue(SICK, by="me")
            app.meddle = lambda id_: resolve(QueueSelection(ids=(id_,)))
            app.resume("tallies", by="me")
            eventually(lambda: [i.status for i in app.queue.list()][1:] == ["dead", "pending"])
        assert app.meddle is None, "nobody came between"
        assert [(item.position, item.status) for item in app.queue.list()] == [
            (2, "resolved"),
            (3, "dead"),
            (4, "pending"),
        ]
