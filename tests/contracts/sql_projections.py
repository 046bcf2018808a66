"""What a SqlProjection promises, on every database."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from itertools import takewhile
from typing import Any, ClassVar
from uuid import UUID

import msgspec
import pytest

from holdfast.app import App
from holdfast.errors import ConfigError, ProjectionFaulted
from holdfast.model.event import Event, NewEvent
from holdfast.model.policy import Limits, Park, Policy
from holdfast.model.projection import SqlProjection, Tx, on
from holdfast.runtime.store.queue_items import QueueSelection
from tests.contracts.failing import FailingSums, Poison, shown_items
from tests.contracts.samples import Counted, counted, execute, fetch, status_of
from tests.support.limits import set_limits

LINES = "CREATE TABLE lines (stream text, n bigint, batch_events bigint)"
COPY = """
INSERT INTO lines SELECT stream, n, (SELECT count(*) FROM batch) FROM batch ORDER BY position
"""


class Colour(Enum):
    RED = "red"


@dataclass
class Painted:
    """A field of every kind, and one that the journal has as well."""

    text: str
    number: int
    part: float
    is_dry: bool
    price: Decimal
    day: date
    at: datetime
    ref: UUID
    colour: Colour
    coats: list[int]
    version: int
    note: str | None = None


class Renamed(msgspec.Struct, rename={"inner": "outer's 100%"}):
    inner: int


class SqlProjectionContract(FailingSums):
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    def test_what_a_condition_keeps_out_is_not_computed_for_one_event_either(
        self, app: App
    ) -> None:
        @app.projection(policy=Policy(on_error=Park()))
        class Readings(SqlProjection):
            tables: ClassVar = {"readings": "CREATE TABLE readings (n integer CHECK (n <> 13))"}
            events = ("Read",)
            sql = """
                INSERT INTO readings
                SELECT CAST(data ->> 'value' AS integer) FROM batch
                WHERE data ->> 'value' <> '' ORDER BY position
            """

        for stream, values in (("a", ("", "1", "")), ("b", ("13", "", "2")), ("c", ("", "3"))):
            app.journal.append(stream, [NewEvent({"value": v}, type="Read") for v in values])
        app.catch_up()
        assert fetch(app, "SELECT n FROM readings ORDER BY n") == [(1,), (3,)]
        assert [item.status for item in app.queue.list()] == ["dead", "pending", "pending"]
        execute(app, "DROP TABLE readings")
        execute(app, "CREATE TABLE readings (n integer)")
        app.queue.requeue(QueueSelection(), by="me")
        app.catch_up()
        assert fetch(app, "SELECT n FROM readings ORDER BY n") == [(2,), (13,)]

    def test_fields_are_columns_of_their_types(self, app: App) -> None:
        @app.projection
        class Paint(SqlProjection):
            tables: ClassVar = {"paint": "CREATE TABLE paint (facts text)"}
            events = (Painted,)
            sql = (
                "INSERT INTO paint SELECT text || number || (number + 1) || (part * 2) || colour ||"
                " ' ' || data_version || ' ' || version || ' ' || coalesce(note, 'none') FROM batch"
                " WHERE is_dry",
                "INSERT INTO paint SELECT CAST(price AS text) || CAST(ref AS text) || stream"
                " FROM batch",
            )

        moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        ref = UUID(int=7)
        for is_dry in (True, False):
            payload = Painted(
                text="a",
                number=3,
                part=1.5,
                is_dry=is_dry,
                price=Decimal("1.50"),
                day=date(2026, 1, 2),
                at=moment,
                ref=ref,
                colour=Colour.RED,
                coats=[1, 2],
                version=77,
            )
            app.journal.append("wall", [payload])
        app.catch_up()
        first, *rest = fetch(app, "SELECT facts FROM paint")
        assert first[0].replace("3.0", "3") == "a343red 77 1 none"
        assert rest == [(f"1.50{ref}wall",)] * 2

    def test_a_key_that_is_no_name(self, app: App) -> None:
        @app.projection
        class Numbers(SqlProjection):
            tables: ClassVar = {"numbers": "CREATE TABLE numbers (n bigint, note text)"}
            events = (Renamed,)
            sql = """
                INSERT INTO numbers SELECT "outer's 100%" + 1, '100%' FROM batch
                WHERE type LIKE 'Ren%' AND ':after' <> '%(after)s'
            """

        app.journal.append("a", [Renamed(1)])
        app.catch_up()
        assert fetch(app, "SELECT n, note FROM numbers") == [(2, "100%")]

    @pytest.mark.parametrize("word", ["WITH", "\n -- why\n with RECURSIVE", "/* a\nb */ With "])
    def test_statements_with_relations_of_their_own(self, app: App, word: str) -> None:
        @app.projection
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": LINES}
            events = (Counted,)
            sql = f"""{word} doubled AS (SELECT stream, 2 * n AS n FROM batch)
                INSERT INTO lines SELECT stream, n, 0 FROM doubled;"""

        app.journal.append("a", [Counted(1), Counted(2)])
        app.catch_up()
        assert fetch(app, "SELECT stream, n FROM lines ORDER BY n") == [("a", 2), ("a", 4)]

    @pytest.mark.parametrize(
        "events", [("Counted",), ("*",), ("Counted", *(f"Type{n}" for n in range(20)))]
    )
    def test_types_by_name(self, app: App, events: tuple[str, ...]) -> None:
        by_name = events

        @app.projection
        class Types(SqlProjection):
            tables: ClassVar = {"types": "CREATE TABLE types (type text)"}
            events = by_name
            sql = "INSERT INTO types SELECT type FROM batch ORDER BY position"

        app.journal.append("a", [counted(1), NewEvent({}, type="Other"), counted(2)])
        app.catch_up()
        found = [type_ for (type_,) in fetch(app, "SELECT type FROM types")]
        assert found == ["Counted", *(["Other"] if events == ("*",) else []), "Counted"]
        assert status_of(app, "types").events_processed == 3

    def test_events_go_together(self, app: App) -> None:
        self.lines(app)
        app.journal.append("a", [Counted(n) for n in range(100)])
        app.catch_up()
        assert fetch(app, "SELECT DISTINCT batch_events FROM lines") == [(100,)]

    def test_numbers_without_events(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        set_limits(app, range_events=5)
        self.lines(app)
        app.journal.append("a", [Counted(n) for n in range(40)])
        gone = {0, 3, *range(9, 20), 24, 39}
        for n in gone:  # By hand.
            execute(app, f"DELETE FROM holdfast_event WHERE version = {n + 1}")
        app.catch_up()
        left = [n for n in range(40) if n not in gone]
        assert [n for (n,) in fetch(app, "SELECT n FROM lines ORDER BY n")] == left
        assert fetch(app, "SELECT DISTINCT batch_events FROM lines") == [(5,)]
        assert status_of(app, "lines").events_processed == len(left)

    @pytest.mark.parametrize("register", ["sql"], indirect=True)
    @pytest.mark.parametrize("seed", range(8))
    def test_those_to_blame_are_found(
        self,
        app: App,
        poison: Poison,
        register: Callable[[Policy], None],
        monkeypatch: pytest.MonkeyPatch,
        seed: int,
    ) -> None:
        """Wherever batches end: exactly these wait, and what is behind them."""
        chance = random.Random(seed)
        set_limits(app, range_events=chance.randint(1, 70))
        register(Policy(on_error=Park()))
        poison.bad = bad = set(chance.sample(range(100), chance.randint(0, 20)))
        numbers = [chance.randrange(100) for _ in range(60)]
        for part in (numbers[:40], numbers[40:]):
            self.append(app, *part)
            app.catch_up()
        lanes: dict[str, list[int]] = {}
        for n in numbers:
            lanes.setdefault(str(n % 10), []).append(n)
        applied = {lane: list(takewhile(lambda n: n not in bad, ns)) for lane, ns in lanes.items()}
        assert self.seen(app) == {lane: ns for lane, ns in applied.items() if ns}
        waiting: dict[str, list[int]] = {}
        for status, lane, n, _ in shown_items(app):
            assert status == ("pending" if lane in waiting else "dead")
            waiting.setdefault(lane, []).append(n)
        behind = {lane: ns[len(applied[lane]) :] for lane, ns in lanes.items()}
        assert waiting == {lane: ns for lane, ns in behind.items() if ns}
        poison.bad = set()
        self.requeue_all(app)
        assert self.seen(app) == lanes
        assert app.queue.list() == []

    @pytest.mark.parametrize("register", ["sql"], indirect=True)
    def test_a_lane_without_room_stops_the_projection(
        self, app: App, poison: Poison, register: Callable[[Policy], None]
    ) -> None:
        register(Policy(on_error=Park(), limits=Limits(events_per_lane=3)))
        poison.bad = {1}
        self.append(app, 2, 1, 11, 12, 21, 22, 31, 42)
        with pytest.raises(ProjectionFaulted, match="events wait in it, which is the limit"):
            app.catch_up()
        assert self.seen(app) == {"2": [2, 12, 22]}
        waiting = [("dead", "1", 1), ("pending", "1", 11), ("pending", "1", 21)]
        assert [item[:3] for item in shown_items(app)] == waiting

    def test_a_statement_that_can_not_run_stops_the_projection(self, app: App) -> None:
        """It is no event's fault, so none is parked for it."""

        @app.projection(policy=Policy(on_error=Park()))
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": LINES}
            events = (Counted,)
            sql = "INSERT INTO lines SELECT stream, no_such_column, 0 FROM batch"

        app.journal.append("a", [Counted(1)])
        with pytest.raises(ProjectionFaulted, match="no_such_column"):
            app.catch_up()
        assert app.queue.list() == []

    def test_a_payload_of_another_type_is_parked(self, open_app: Callable[..., App]) -> None:
        is_sqlite = self.placeholder == "?"
        strict = "CREATE TABLE lines (stream text, n integer) STRICT" if is_sqlite else LINES
        app = open_app()

        @app.projection(policy=Policy(on_error=Park()))
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": strict}
            events = (Counted,)
            sql = "INSERT INTO lines (stream, n) SELECT stream, n FROM batch"

        app.journal.append("a", [counted(1), counted(3)])
        app.journal.append("b", [counted(2)])
        # As one may have appended it who does not know the class.
        execute(app, 'UPDATE holdfast_event SET data = \'{"n": "many"}\' WHERE position = 2')
        app.catch_up()
        assert fetch(app, "SELECT stream, n FROM lines ORDER BY n") == [("a", 1), ("b", 2)]
        (item,) = app.queue.list(QueueSelection(status="dead"))
        assert (item.lane, item.version) == ("a", 2)

    @pytest.mark.parametrize("register", ["sql"], indirect=True)
    def test_what_people_have_resolved_is_left_out(
        self, app: App, poison: Poison, register: Callable[[Policy], None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {11}
        self.append(app, 1, 11, 21, 2)
        app.catch_up()
        app.queue.resolve(QueueSelection(status="dead"), by="me", note="never mind")
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21], "2": [2]}
        poison.bad = set()
        app.reset("sums", by="me")
        app.catch_up()
        assert self.seen(app)["2"] == [2]

    @pytest.mark.parametrize("register", ["sql"], indirect=True)
    def test_an_outbox_applies_one_event_at_a_time(
        self, app: App, poison: Poison, register: Callable[[Policy], None]
    ) -> None:
        @app.projection(delivery="outbox", policy=Policy(on_error=Park()))
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": LINES}
            events = (Counted,)
            sql = COPY

        self.append(app, 1, 2, 11)
        app.catch_up()
        rows = fetch(app, "SELECT stream, n, batch_events FROM lines ORDER BY n")
        assert rows == [("1", 1, 1), ("2", 2, 1), ("1", 11, 1)]

    def test_payloads_of_older_versions_are_refused(self, app: App) -> None:
        self.lines(app)
        app.events.upcaster("Counted", from_version=1)(lambda data: data)
        with pytest.raises(ConfigError, match="Counted"):
            app.catch_up()

    def test_a_handler_has_no_place(self, app: App) -> None:
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": LINES}
            events = (Counted,)
            sql = COPY

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None: ...

        with pytest.raises(ConfigError, match="has no handlers"):
            app.projection(Lines)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"sql": ""}, "a statement, or a tuple"),
            ({"sql": ()}, "a statement, or a tuple"),
            ({"sql": "DELETE FROM lines"}, "does not read the relation `batch`"),
            ({"events": ()}, "names the event types"),
            ({"events": (3,)}, "give event classes or type names"),
            ({"lane": lambda _self, _event: "one"}, "are streams"),
        ],
    )
    def test_what_is_wrong_is_said_at_once(
        self, app: App, body: dict[str, Any], message: str
    ) -> None:
        good = {"sql": COPY, "events": (Counted,), "tables": {"lines": LINES}}
        with pytest.raises(ConfigError, match=message):
            app.projection(type("Lines", (SqlProjection,), good | body))

    def lines(self, app: App, policy: Policy | None = None) -> None:
        """A projection with a line for each event, and how many events came with it."""

        @app.projection(policy=policy)
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": LINES}
            events = (Counted,)
            sql = COPY
