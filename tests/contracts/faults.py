"""What a failing event does: everything before it is in, nothing after it, and it is named."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.event import Event, NewEvent
from holdfast.model.projection import Projection, TableProjection, Tx, on
from tests.contracts.counts import BEFORE, EVENTS, Count, Counting, append_batch
from tests.contracts.samples import WAIT_SECONDS, Counted, counted, execute, fetch, status_of


@dataclass
class Collected:
    """A count with JSON of one type."""

    n: int
    times: int = 0
    numbers: list[int] = field(default_factory=list)


class Untellable(Exception):
    """Can't even say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


BAD_VALUES: dict[str, Any] = {
    "number": 2**63,
    "text": "nul \0 inside",
    "moment": datetime(2024, 1, 1),
    "exact": Decimal("NaN"),
    "raw": "not bytes",
    "anything": [object()],
    "n": 12_345,
}
BAD_JSON: list[Any] = [None, {"a": 1}, ["x"], "text", (1, None), [float("nan")]]
ERRORS: list[BaseException] = [
    ValueError("wrong"),
    ValueError("nul \0 inside, 'quoted', 💡"),
    ZeroDivisionError(),
    ProjectionFaulted("raised by a handler"),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopIteration(),
    ExceptionGroup("several", [ValueError("one")]),
    Untellable(),
]


class FaultContract(Counting):
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    @pytest.mark.parametrize("failing", [0, 4, EVENTS - 1])
    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_what_precedes_a_failure_is_in_and_nothing_after_it(
        self, app: App, kind: str, failing: int
    ) -> None:
        broken = True

        def fail(n: int, _: Any) -> None:
            if broken and n == failing:
                raise ValueError(f"no {n}, please")

        self.register(app, kind, fail)
        appended = append_batch(app)
        self.check_fault(app, appended, failing)
        error = status_of(app, "counts").last_error
        assert error is not None
        assert (error.type, error.message) == ("ValueError", f"no {failing}, please")
        assert "in fail" in error.stacktrace
        assert error.at.tzinfo is not None
        self.check_fault(app, appended, failing)  # Starting it again is no harm.
        broken = False
        self.check_mended(app)

    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_a_payload_that_can_not_be_decoded(self, app: App, kind: str) -> None:
        app.journal.append("a", [counted(n) for n in BEFORE])
        bad = [NewEvent({"n": "text"}, type="Counted") if n == 4 else counted(n) for n in range(9)]
        appended = app.journal.append("a", bad)
        self.register(app, kind, lambda n, _: None)
        fault = self.check_fault(app, appended, 4)
        assert "PayloadError" in str(fault)
        assert "`$.n`" in str(fault)

    def test_a_key_that_can_not_be_had(self, app: App) -> None:
        broken = True

        def key(n: int) -> Any:
            return n if n != 4 or not broken else ("two", "parts")

        self.register(app, "table", lambda n, _: None, key=key)
        self.check_fault(app, append_batch(app), 4)
        broken = False
        self.check_mended(app)

    @pytest.mark.parametrize("failing", [0, 4, EVENTS - 1])
    @pytest.mark.parametrize("column", BAD_VALUES)
    def test_a_value_that_can_not_be_stored(self, app: App, column: str, failing: int) -> None:
        broken = True

        def spoil(n: int, row: Any) -> None:
            if broken and n == failing:
                setattr(row, column, BAD_VALUES[column])

        self.register(app, "table", spoil)
        fault = self.check_fault(app, append_batch(app), failing)
        assert "counts" in str(fault)
        broken = False
        self.check_mended(app)

    @pytest.mark.parametrize("wrong", BAD_JSON, ids=repr)
    def test_json_that_is_not_what_the_row_type_says(self, app: App, wrong: Any) -> None:
        @app.projection
        class Counts(TableProjection[Collected]):
            def key(self, event: Event[Any]) -> Any:
                return event.data.n

            @on(Counted)
            def counted(self, row: Collected, event: Event[Counted]) -> None:
                row.times += 1
                if event.data.n == 4:
                    row.numbers = wrong

        fault = self.check_fault(app, append_batch(app), 4)
        assert "table 'counts', row (4,): column 'numbers' (JSON) can't hold" in str(fault)
        assert f"can't hold {wrong!r}: " in str(fault)

    @pytest.mark.parametrize("wrong", [float("nan"), {"a": [1, float("-inf")]}], ids=repr)
    def test_json_has_no_place_for_nan_and_infinity(self, app: App, wrong: Any) -> None:
        def spoil(n: int, row: Any) -> None:
            row.anything = [wrong] if n == 4 else [None]

        self.register(app, "table", spoil)
        fault = self.check_fault(app, append_batch(app), 4)
        assert "column 'anything' (JSON | None) can't hold" in str(fault)
        assert "has no place in JSON" in str(fault)

    @pytest.mark.parametrize("wrong", [1, "x", Counted(1), dict])
    def test_a_result_that_is_no_row(self, app: App, wrong: object) -> None:
        @app.projection
        class Counts(TableProjection[Count]):
            def key(self, event: Event[Any]) -> Any:
                return event.data.n

            @on(Counted)
            def counted(self, row: Count, event: Event[Counted]) -> object:
                row.times += 1
                return wrong if event.data.n == 4 else row

        fault = self.check_fault(app, append_batch(app), 4)
        assert "TypeError" in str(fault)

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_whatever_a_handler_raises(self, app: App, kind: str, error: BaseException) -> None:
        def fail(n: int, _: Any) -> None:
            if n == 4:
                raise error

        self.register(app, kind, fail)
        fault = self.check_fault(app, append_batch(app), 4)
        if not isinstance(error, StopIteration):  # A generator on the way may wrap that one.
            assert fault.__cause__ is error

    @pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), ValueError("x")])
    def test_whatever_a_coroutine_raises(self, app: App, error: BaseException) -> None:
        @app.projection
        class Counts(TableProjection[Count]):
            def key(self, event: Event[Any]) -> Any:
                return event.data.n

            @on(Counted)
            async def counted(self, row: Count, event: Event[Counted]) -> None:
                row.times += 1
                await asyncio.sleep(0)
                if event.data.n == 4:
                    raise error

        self.check_fault(app, append_batch(app), 4)

    def test_a_statement_that_fails(self, app: App) -> None:
        broken = True

        def fail(n: int, tx: Any) -> None:
            if broken and n == 4:
                tx.execute("INSERT INTO no_such_table VALUES (1)")

        self.register(app, "handler", fail)
        fault = self.check_fault(app, append_batch(app), 4)
        assert "no_such_table" in str(fault)
        broken = False
        self.check_mended(app)

    def test_a_failed_statement_that_is_swallowed_is_harmless_or_a_fault(self, app: App) -> None:
        """Never may the rest of the batch be gone without a word."""

        def fail(n: int, tx: Any) -> None:
            if n == 4:
                try:
                    tx.execute("INSERT INTO no_such_table VALUES (1)")
                except Exception as error:
                    assert "no_such_table" in str(error)  # noqa: PT017

        self.register(app, "handler", fail)
        appended = append_batch(app)
        try:
            app.catch_up()
        except ProjectionFaulted as fault:
            assert "swallowed" in str(fault)  # noqa: PT017
            self.check_fault(app, appended, 4)
        else:
            assert self.counts(app) == [(n, 1) for n in (*range(EVENTS), *BEFORE)]

    @pytest.mark.parametrize(
        "way",
        [
            "COMMIT",
            "ROLLBACK",
            "COMMIT; BEGIN",
            "ROLLBACK; BEGIN",
            "COMMIT AND CHAIN",
            "commit",
            "rollback",
            "close",
        ],
    )
    def test_a_handler_that_ends_the_transaction(self, app: App, way: str) -> None:
        broken = True

        def end(n: int, tx: Any) -> None:
            if broken and n == 4:
                if way.isupper():
                    tx.execute(way)
                else:
                    getattr(tx.connection, way)()

        self.register(app, "handler", end)
        appended = append_batch(app)
        with pytest.raises(ProjectionFaulted):
            app.catch_up()
        assert status_of(app, "counts").position <= appended.positions[4 - 1]
        assert status_of(app, "counts").state == "faulted"
        broken = False
        before = self.counts(app)
        try:
            app.catch_up()
        except ProjectionFaulted as refusal:
            # Where it could not be prevented, rows may be ahead of the checkpoint.
            assert "holdfast reset counts" in str(refusal)  # noqa: PT017
            assert status_of(app, "counts").state == "faulted"
            assert self.counts(app) == before
        app.reset("counts")
        self.check_mended(app)

    def test_a_connection_that_a_handler_closes_is_its_own_harm(self, app: App) -> None:
        def close(n: int, tx: Any) -> None:
            if n == 4:
                tx.connection.close()

        self.register(app, "handler", close)
        self.register(app, "handler", lambda n, _: None, name="healthy")
        appended = append_batch(app)
        with pytest.raises(ProjectionFaulted, match="counts"):
            app.catch_up()
        assert status_of(app, "counts").last_error is not None
        assert status_of(app, "healthy").position == appended.position
        assert app.journal.append("a", [Counted(99)]).position > appended.position

    @pytest.mark.parametrize("what", ["catch_up", "wait_for", "reset", "running"])
    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_a_handler_can_not_run_its_own_app(self, app: App, kind: str, what: str) -> None:
        def call(n: int, _: Any) -> None:
            if n == 4:
                match what:
                    case "catch_up":
                        app.catch_up()
                    case "wait_for":
                        app.wait_for("counts", 1)
                    case "reset":
                        app.reset("counts")
                    case _:
                        app.running().__enter__()

        self.register(app, kind, call)
        fault = self.check_fault(app, append_batch(app), 4)
        assert "inside a handler" in str(fault)

    def test_a_feed_that_ends_before_the_checkpoint(self, app: App) -> None:
        self.register(app, "table", lambda n, row: None)
        append_batch(app)
        app.catch_up()
        execute(app, "UPDATE holdfast_checkpoint SET position = position + 100")
        with pytest.raises(ProjectionFaulted, match="restored from an older copy"):
            app.catch_up()

    def test_a_fault_stops_one_projection_alone(self, app: App) -> None:
        def fail(n: int, _: Any) -> None:
            if n == 4:
                raise ValueError("only here")

        self.register(app, "table", fail)
        self.register(app, "handler", lambda n, _: None, name="healthy")
        appended = append_batch(app)
        self.check_fault(app, appended, 4)
        healthy = status_of(app, "healthy")
        assert (healthy.state, healthy.position) == ("stopped", appended.position)
        assert healthy.last_error is None
        assert len(fetch(app, "SELECT n FROM healthy")) == len(BEFORE) + EVENTS

    def test_those_who_wait_are_told(self, app: App) -> None:
        def fail(n: int, _: Any) -> None:
            if n == 4:
                raise ValueError("no 4, please")

        self.register(app, "table", fail)
        appended = append_batch(app)
        with app.running() as running:
            with pytest.raises(ProjectionFaulted, match="counts"):
                app.wait_for("counts", appended.position, timeout_seconds=WAIT_SECONDS)
            app.wait_for("counts", appended.positions[3])  # What is in can be waited for.
            assert running.faulted == {"counts": "ValueError: no 4, please"}

    @pytest.mark.parametrize("failing", ["table", "checkpoint"])
    def test_a_failure_of_the_store_itself_is_no_event_s(self, app: App, failing: str) -> None:
        """However often it happens, no event can help it."""
        self.register(app, "table", lambda n, row: None)
        append_batch(app)
        table = "counts" if failing == "table" else "holdfast_checkpoint"
        column = "times" if failing == "table" else "events_per_second"
        execute(app, f"ALTER TABLE {table} RENAME COLUMN {column} TO hidden")
        with pytest.raises(ProjectionFaulted, match=column):
            app.catch_up()
        if failing == "checkpoint":
            execute(app, f"ALTER TABLE {table} RENAME COLUMN hidden TO {column}")
        status = status_of(app, "counts")
        assert status.last_error is not None
        assert (status.state, status.last_error.position) == ("faulted", None)

    def test_a_setup_that_fails_is_a_fault_without_an_event(self, app: App) -> None:
        @app.projection(name="counts")
        class Counts(Projection):
            tables = {"counts": "CREATE TABLE something_else (n integer)"}

            @on("*")
            def any(self, event: Event[Any], tx: Tx) -> None:
                return None

        with pytest.raises(ProjectionFaulted, match="did not create table 'counts'"):
            app.catch_up()
        status = status_of(app, "counts")
        assert status.state == "faulted"
        assert status.last_error is not None
        assert status.last_error.position is None
