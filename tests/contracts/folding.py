"""What a TableProjection does with events, from the journal to the rows."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pytest

from holdfast.app import App
from holdfast.model.event import Event, NewEvent
from holdfast.model.policy import Park, Policy
from holdfast.model.projection import DELETE, TableProjection, on
from tests.contracts.failing import shown_items
from tests.contracts.samples import Counted, counted, fetch, status_of


class Opened(msgspec.Struct):
    """An account is there."""

    owner: str


@dataclass
class Closed:
    """An account is no longer there."""


@dataclass
class Account:
    """A row that changes in place."""

    name: str
    amount: int = 0
    events: int = 0
    seen: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Total:
    """A row that is replaced."""

    total: int = 0
    owner: str = ""
    kind: str = ""


@dataclass
class Last:
    """A row with a column for anything."""

    name: str
    last: Any = None
    seen: str = ""


ACCOUNTS = "SELECT name, amount, events FROM accounts ORDER BY name"


class FoldingContract:
    """Needs a fixture `app`: an App on an empty database."""

    @pytest.fixture
    def app(self) -> App:
        raise NotImplementedError

    def test_events_are_folded_into_the_row_of_their_stream(self, app: App) -> None:
        @app.projection
        class Accounts(TableProjection[Account]):
            @on(Counted)
            def counted(self, row: Account, event: Event[Counted]) -> None:
                row.amount += event.data.n
                row.events += 1

        for n in (1, 2, 3):
            app.journal.append("a", [Counted(n), Counted(10 * n)])
            app.journal.append("b", [Counted(-n)])
            app.catch_up()
        assert fetch(app, ACCOUNTS) == [("a", 66, 6), ("b", -6, 3)]
        app.catch_up()
        assert fetch(app, ACCOUNTS) == [("a", 66, 6), ("b", -6, 3)]

    def test_many_events_over_many_batches(self, app: App) -> None:
        @app.projection
        class Accounts(TableProjection[Account]):
            def key(self, event: Event[Any]) -> str:
                return f"{event.data['n'] % 300:03}"

            @on("Counted")
            def counted(self, row: Account, event: Event[dict[str, int]]) -> None:
                row.amount += event.data["n"]
                row.events += 1

        for start in range(0, 12_000, 6_000):
            app.journal.append("a", [counted(n) for n in range(start, start + 6_000)])
        app.catch_up()
        expected = [(f"{n:03}", sum(range(n, 12_000, 300)), 40) for n in range(300)]
        assert fetch(app, ACCOUNTS) == expected
        assert status_of(app, "accounts").events_processed == 12_000

    def test_composite_keys_come_from_the_event(self, app: App) -> None:
        @app.projection
        class Totals(TableProjection[Total]):
            key_fields = ("owner", "kind")

            def key(self, event: Event[Any]) -> tuple[str, str] | None:
                if event.data["n"] == 0:
                    return None
                return event.stream, "even" if event.data["n"] % 2 == 0 else "odd"

            @on("Counted")
            def counted(self, row: Total, event: Event[Any]) -> Total:
                return dataclasses.replace(row, total=row.total + event.data["n"])

        for stream in ("a", "b"):
            app.journal.append(stream, [counted(n) for n in (1, 0, 2, 3, 0)])
        app.catch_up()
        app.journal.append("a", [counted(4), counted(0)])
        app.catch_up()
        assert fetch(app, "SELECT owner, kind, total FROM totals ORDER BY owner, kind") == [
            ("a", "even", 6),
            ("a", "odd", 4),
            ("b", "even", 2),
            ("b", "odd", 4),
        ]
        assert status_of(app, "totals").position == app.journal.head()

    @pytest.mark.parametrize("batches", ["one", "many"])
    def test_rows_are_deleted_and_made_again(self, app: App, batches: str) -> None:
        @app.projection
        class Accounts(TableProjection[Account]):
            @on(Opened, Counted)
            def changed(self, row: Account, event: Event[Any]) -> None:
                row.events += 1

            @on(Closed)
            def closed(self, row: Account, event: Event[Closed]) -> object:
                return DELETE

        def append(stream: str, *events: object) -> None:
            for event in events:
                app.journal.append(stream, [event])
                if batches == "many":
                    app.catch_up()

        append("gone", Opened("x"), Counted(1), Closed())
        append("never there", Closed())
        append("again", Opened("x"), Counted(1), Closed(), Opened("y"), Counted(1), Counted(1))
        append("twice", Opened("x"), Closed(), Closed(), Opened("y"))
        app.catch_up()
        assert fetch(app, ACCOUNTS) == [("again", 0, 3), ("twice", 0, 1)]

    def test_handlers_may_be_coroutines(self, app: App) -> None:
        @app.projection
        class Accounts(TableProjection[Account]):
            @on(Counted)
            async def counted(self, row: Account, event: Event[Counted]) -> None:
                before = row.amount
                await asyncio.sleep(0)
                row.amount = before + event.data.n

            @on(Closed)
            async def closed(self, row: Account, event: Event[Closed]) -> object:
                return DELETE

        app.journal.append("a", [Counted(n) for n in range(10)])
        app.journal.append("b", [Counted(1), Closed()])
        app.catch_up()
        assert fetch(app, ACCOUNTS) == [("a", 45, 0)]

    def test_handlers_by_class_by_name_several_and_the_rest(self, app: App) -> None:
        @app.projection
        class Accounts(TableProjection[Account]):
            @on(Counted, "Named")
            def some(self, row: Account, event: Event[Any]) -> None:
                row.seen.append(f"some {event.type} {type(event.data).__name__}")

            @on(Opened)
            def opened(self, row: Account, event: Event[Opened]) -> None:
                row.seen.append(f"opened {event.data.owner}")

            @on("*")
            def rest(self, row: Account, event: Event[Any]) -> None:
                row.seen.append(f"rest {event.type} {event.version}")

        events = [NewEvent({}, type="Named"), Opened("x"), Closed(), NewEvent({}, type="Odd")]
        app.journal.append("a", [Counted(1), *events])
        app.catch_up()
        (stored,) = fetch(app, "SELECT seen FROM accounts")
        seen = stored[0] if isinstance(stored[0], list) else msgspec.json.decode(stored[0])
        assert seen == [
            "some Counted Counted",
            "some Named dict",
            "opened x",
            "rest Closed 4",
            "rest Odd 5",
        ]

    def test_other_events_are_passed_over(self, app: App) -> None:
        @app.projection
        class Accounts(TableProjection[Account]):
            @on(Counted)
            def counted(self, row: Account, event: Event[Counted]) -> None:
                row.amount += event.data.n

        app.journal.append("only others", [Closed(), NewEvent({}, type="Odd")])
        app.journal.append("a", [Closed(), Counted(1), Closed()])
        app.catch_up()
        assert fetch(app, ACCOUNTS) == [("a", 1, 0)]
        status = status_of(app, "accounts")
        assert (status.position, status.lag_events) == (app.journal.head(), 0)
        assert status.events_processed == 5
        assert status.last_event_type == "Closed"

    @pytest.mark.parametrize("batches", ["one", "many"])
    def test_none_stays_none_where_anything_may_be(self, app: App, batches: str) -> None:
        @app.projection
        class Latest(TableProjection[Last]):
            @on("Counted")
            def counted(self, row: Last, event: Event[Any]) -> None:
                row.seen += f"{row.last!r} "
                row.last = "null" if event.data["n"] == 2 else None

        for n in (1, 2, 3, 4):
            app.journal.append("a", [counted(n)])
            if batches == "many":
                app.catch_up()
        app.catch_up()
        assert fetch(app, "SELECT seen, last FROM latest") == [("None None 'null' None ", None)]

    @pytest.mark.parametrize("kind", [int, str])
    def test_whoever_deletes_a_field_is_to_blame(self, app: App, kind: type) -> None:
        row_type = dataclasses.make_dataclass(
            "Row", [("name", str), ("n", int, 0), ("last", kind, kind())], slots=True
        )

        @app.projection(name="rows", policy=Policy.best_effort())
        class Rows(TableProjection[row_type]):  # type: ignore[valid-type]
            @on(Counted)
            def counted(self, row: Any, event: Event[Counted]) -> None:
                row.n += event.data.n
                row.last = kind(event.data.n)
                if event.data.n == 10:
                    del row.n

        app.journal.append("a", [Counted(1), Counted(10), Counted(100)])
        app.catch_up()
        assert fetch(app, "SELECT name, n, last FROM rows") == [("a", 101, kind(100))]
        assert shown_items(app) == [("skipped", "a", 10, 1)]

    @pytest.mark.parametrize("batches", ["one", "many"])
    @pytest.mark.parametrize(
        ("kind", "wrong"),
        [(int, True), (int, 2**63), (bool, 1), (str, 1), (bytes, "text"), (float, "1")],
    )
    def test_a_wrong_value_is_refused_whatever_the_next_event_makes_of_it(
        self, app: App, batches: str, kind: type, wrong: object
    ) -> None:
        row_type = dataclasses.make_dataclass(
            "Row", [("name", str), ("n", int, 0), ("value", kind, kind())]
        )

        @app.projection(name="rows", policy=Policy.best_effort())
        class Rows(TableProjection[row_type]):  # type: ignore[valid-type]
            @on(Counted)
            def counted(self, row: Any, event: Event[Counted]) -> None:
                row.n += event.data.n
                row.value = wrong if event.data.n == 10 else kind()

        for n in (1, 10, 100):
            app.journal.append("a", [Counted(n)])
            if batches == "many":
                app.catch_up()
        app.catch_up()
        assert fetch(app, "SELECT name, n FROM rows") == [("a", 101)]
        assert shown_items(app) == [("skipped", "a", 10, 1)]

    @pytest.mark.parametrize("delivery", ["log", "outbox"])
    def test_an_attribute_that_is_no_field_is_its_events_failure(
        self, app: App, delivery: Literal["log", "outbox"]
    ) -> None:
        @app.projection(policy=Policy(on_error=Park()), delivery=delivery)
        class Accounts(TableProjection[Account]):
            @on(Counted)
            def counted(self, row: Account, event: Event[Counted]) -> None:
                if event.data.n == 3:
                    row.amuont = 4  # type: ignore[attr-defined]
                row.amount += event.data.n

        app.journal.append("a", [Counted(1), Counted(2)])
        app.journal.append("b", [Counted(1), Counted(3), Counted(5)])
        app.journal.append("c", [Counted(1), Counted(2)])
        app.catch_up()
        assert fetch(app, ACCOUNTS) == [("a", 3, 0), ("b", 1, 0), ("c", 3, 0)]
        failed, _ = app.queue.list()
        assert failed.error_type == "ValueError"
        assert "'amuont', which is not a field of Account; did you mean 'amount'?" in str(
            failed.error_message
        )

    def test_two_projections_of_one_feed(self, app: App) -> None:
        def make(name: str, factor: int) -> None:
            @app.projection(name=name)
            class Accounts(TableProjection[Account]):
                @on(Counted)
                def counted(self, row: Account, event: Event[Counted]) -> None:
                    row.amount += factor * event.data.n

        make("plus", 1)
        make("minus", -1)
        app.journal.append("a", [Counted(1), Counted(2)])
        app.catch_up()
        assert fetch(app, "SELECT amount FROM plus") == [(3,)]
        assert fetch(app, "SELECT amount FROM minus") == [(-3,)]
