"""Joined events reach projections, and a handler's own transaction can be joined too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import (
    App,
    Event,
    NewEvent,
    Poll,
    Projection,
    ProjectionFaulted,
    TableProjection,
    Tx,
    on,
)
from tests.support.joining import SqlalchemyConnection, opened

HOUR = 3600.0


@dataclass
class Placed:
    amount: int


@dataclass
class Billed:
    amount: int


@dataclass
class Total:
    stream: str
    amount: int = 0


@pytest.fixture
def postgres_url(emptied_postgres_url: str) -> str:
    return emptied_postgres_url


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "sqlite:///:memory:"
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with App(url) as app:
        app.migrate()
        yield app


def mark(app: App) -> str:
    """How this database writes a parameter."""
    return "%s" if str(app.url).startswith("postgres") else "?"


def rows(app: App, sql: str) -> list[tuple[Any, ...]]:
    with app._database.reading() as connection:
        return connection.tx.fetch(sql)


def totals(app: App, poll: Poll | None = None) -> type[TableProjection[Total]]:
    @app.projection(poll=poll)
    class Totals(TableProjection[Total]):
        @on(Placed)
        def placed(self, row: Total, event: Event[Placed]) -> None:
            row.amount += event.data.amount

    return Totals


def billing(app: App) -> Callable[[bool], None]:
    """Registers a projection that answers each Placed with a row and a joined Billed event.

    Returns a switch: while it is on, the handler fails at 13, after it has done its work.
    """
    failing = True

    def switch(on_: bool) -> None:
        nonlocal failing
        failing = on_

    @app.projection
    class Billing(Projection):
        tables = {"bill": "CREATE TABLE bill (amount bigint)"}  # noqa: RUF012

        @on(Placed)
        def placed(self, event: Event[Placed], tx: Tx) -> None:
            tx.execute(f"INSERT INTO bill VALUES ({mark(app)})", (event.data.amount,))
            app.journal.append(f"bill-{event.stream}", [Billed(event.data.amount)], connection=tx)
            if failing and event.data.amount == 13:
                raise ValueError("thirteen")

    return switch


def billed(app: App) -> list[int]:
    return [event.data.amount for event in app.journal.read() if event.type == "Billed"]


def test_polling_finds_joined_events(store_url: str) -> None:
    with App(store_url) as app, opened(SqlalchemyConnection(store_url)) as way:
        projection = totals(app, Poll(interval_seconds=0.01, empty_backoff_seconds=0.01))
        with app.running():
            with way.transaction():
                appended = way.append(app.journal, "order-1", [Placed(5)])
            app.wait_for(projection, appended.position, timeout_seconds=30)
        assert rows(app, "SELECT amount FROM totals") == [(5,)]


def test_wake_saves_the_wait(store_url: str) -> None:
    with App(store_url) as app, opened(SqlalchemyConnection(store_url)) as way:
        projection = totals(app, Poll(interval_seconds=HOUR, empty_backoff_seconds=HOUR))
        with app.running():
            first = app.journal.append("order-1", [Placed(5)])
            app.wait_for(projection, first.position, timeout_seconds=30)
            with way.transaction():
                appended = way.append(app.journal, "order-1", [Placed(2)])
            app.journal.wake()
            app.wait_for(projection, appended.position, timeout_seconds=30)
        assert rows(app, "SELECT amount FROM totals") == [(7,)]


def test_a_handlers_append_is_in_with_its_rows(app: App) -> None:
    switch = billing(app)
    switch(False)
    for amount in range(10, 20):
        app.journal.append(f"order-{amount % 3}", [Placed(amount)])
    app.catch_up(timeout_seconds=60)
    assert rows(app, "SELECT amount FROM bill ORDER BY amount") == [(n,) for n in range(10, 20)]
    assert billed(app) == list(range(10, 20))


def test_a_handlers_append_goes_with_its_rows_and_is_made_once(app: App) -> None:
    """The batch is tried whole, then its good part again: each append must be in exactly once."""
    switch = billing(app)
    for amount in range(10, 20):
        app.journal.append(f"order-{amount % 3}", [Placed(amount)])
    for _ in range(2):
        with pytest.raises(ProjectionFaulted, match="thirteen"):
            app.catch_up(timeout_seconds=60)
        assert rows(app, "SELECT amount FROM bill ORDER BY amount") == [(10,), (11,), (12,)]
        assert billed(app) == [10, 11, 12]

    switch(False)
    app.catch_up(timeout_seconds=60)
    assert rows(app, "SELECT amount FROM bill ORDER BY amount") == [(n,) for n in range(10, 20)]
    assert billed(app) == list(range(10, 20))
    assert [event.version for event in app.journal.read_stream("bill-order-1")] == [1, 2, 3, 4]


def test_an_async_handler_can_append_too(app: App) -> None:
    @app.projection
    class Billing(Projection):
        @on(Placed)
        async def placed(self, event: Event[Placed], tx: Tx) -> None:
            bill = [Billed(event.data.amount)]
            await app.journal.append_async(f"bill-{event.stream}", bill, connection=tx)

    app.journal.append("order-1", [Placed(1), Placed(2)])
    app.catch_up(timeout_seconds=60)
    assert billed(app) == [1, 2]


def test_an_append_of_its_own_inside_a_handler_is_refused_on_sqlite(sqlite_url: str) -> None:
    """There is one writer, and the handler has it: waiting for it would never end."""
    with App(sqlite_url) as app:

        @app.projection
        class Billing(Projection):
            @on(Placed)
            def placed(self, event: Event[Placed], tx: Tx) -> None:
                app.journal.append(f"bill-{event.stream}", [Billed(event.data.amount)])

        app.journal.append("order-1", [Placed(1)])
        with pytest.raises(ProjectionFaulted, match="pass connection=tx"):
            app.catch_up(timeout_seconds=60)
        assert billed(app) == []


def test_a_handlers_tx_of_another_database(store_url: str, tmp_path: Any) -> None:
    with App(store_url) as app, App(f"sqlite:///{tmp_path}/elsewhere.db") as elsewhere:
        elsewhere.migrate()

        @app.projection
        class Billing(Projection):
            @on(Placed)
            def placed(self, event: Event[Placed], tx: Tx) -> None:
                elsewhere.journal.append("bill", [NewEvent({}, type="Billed")], connection=tx)

        app.journal.append("order-1", [Placed(1)])
        with pytest.raises(ProjectionFaulted, match="the journal's own database"):
            app.catch_up(timeout_seconds=60)
        assert elsewhere.journal.head() == 0


def test_a_handlers_append_holds_readers_back_until_it_commits(postgres_url: str) -> None:
    """Its position is drawn before the commit, as that of any other append."""
    seen: list[list[str]] = []
    with App(postgres_url) as app, App(postgres_url) as other:

        @app.projection
        class Billing(Projection):
            @on(Placed)
            def placed(self, event: Event[Placed], tx: Tx) -> None:
                app.journal.append("bill", [Billed(event.data.amount)], connection=tx)
                other.journal.append("meanwhile", [NewEvent({}, type="Noted")])
                seen.append([event.stream for event in app.journal.read()])

        app.journal.append("order-1", [Placed(1)])
        app.catch_up(timeout_seconds=60)
        assert seen == [["order-1"]]
        assert [e.stream for e in app.journal.read()] == ["order-1", "bill", "meanwhile"]
