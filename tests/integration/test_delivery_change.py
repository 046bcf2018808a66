"""A projection that is changed from log delivery to an outbox, and back."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from holdfast import App, Event, NewEvent, Projection, ProjectionFaulted, Tx, on
from tests.contracts.samples import fetch


class Seen(Projection):
    tables: ClassVar = {"seen": "CREATE TABLE seen (n INTEGER)"}

    @on("Counted")
    def counted(self, event: Event[Any], tx: Tx) -> None:
        tx.connection.execute(f"INSERT INTO seen VALUES ({event.data['n']})")


@pytest.fixture
def numbers() -> Iterator[int]:
    return iter(range(1, 100))


def release(url: str, numbers: Iterator[int], **settings: Any) -> list[int]:
    """A release of the app: appends before it runs and after, and returns what was applied."""
    with App(url) as app:
        app.projection(**settings)(Seen)
        append(app, numbers)
        app.catch_up()
        append(app, numbers)
        return [row[0] for row in fetch(app, "SELECT n FROM seen ORDER BY n")]


def append(app: App, numbers: Iterator[int]) -> None:
    app.journal.append("a", [NewEvent({"n": next(numbers)}, type="Counted")])


def roll_back_an_append(url: str) -> None:
    """Draws a position on PostgreSQL that no event ever has."""
    if url.startswith("postgresql"):
        import psycopg

        with App(url) as app, psycopg.connect(url) as connection:
            event = NewEvent({"n": 0}, type="Counted")
            app.journal.append("rolled back", [event], connection=connection)
            connection.rollback()


def test_from_the_log_to_an_outbox_and_back(store_url: str, numbers: Iterator[int]) -> None:
    assert release(store_url, numbers) == [1]
    assert release(store_url, numbers, delivery="outbox") == [1, 2, 3]
    with pytest.raises(ProjectionFaulted, match="is delivered by an outbox on this database"):
        release(store_url, numbers)  # 5 is in the queue.
    with App(store_url) as app:
        app.projection(Seen)
        kind, text = app.explain(Seen)[0].kind, app.explain(Seen)[0].text
        assert (kind, "by an outbox, and this code by the log" in text) == ("delivery", True)
    assert release(store_url, numbers, delivery="outbox") == [1, 2, 3, 4, 5, 6]
    with App(store_url) as app:
        app.projection(delivery="outbox")(Seen)
        app.catch_up()
        assert app.queue.list() == []
        roll_back_an_append(store_url)
    with App(store_url) as app:
        app.projection(Seen)
        assert app.outbox.forget("seen", by="ann") == 0
        app.catch_up()
    assert release(store_url, numbers) == [1, 2, 3, 4, 5, 6, 7, 8]
