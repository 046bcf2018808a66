"""What a failing event does: everything before it is in, nothing after it, and it is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast.app import App
from holdfast.core.errors import ProjectionFaulted
from holdfast.core.event import Appended, Event, NewEvent
from holdfast.core.projection import Projection, TableProjection, Tx, on
from holdfast.testing.contracts.samples import WAIT_SECONDS, Counted, counted, fetch, status_of

EVENTS = 10
BEFORE = [100, 101, 102]
"""What has been processed before the batch with the failing event."""

Effect = Callable[[int, Any], None]
"""What a handler does beside its work: it gets the event's number, and the row or the tx."""


@dataclass
class Count:
    """How often a number was seen, and a column of each kind that refuses something."""

    n: int
    times: int = 0
    number: int | None = None
    text: str | None = None
    moment: datetime | None = None
    exact: Decimal | None = None
    raw: bytes | None = None
    anything: list[Any] | None = None


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


class FaultContract:
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    placeholder: str

    @pytest.fixture
    def app(self) -> App:
        raise NotImplementedError

    @pytest.mark.parametrize("failing", [0, 4, EVENTS - 1])
    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_what_precedes_a_failure_is_in_and_nothing_after_it(
        self, app: App, kind: str, failing: int
    ) -> None:
        broken = True

        def fail(n: int, _: Any) -> None:
            if broken and n == failing:
                raise ValueError(f"no {n}, please")

        self._register(app, kind, fail)
        appended = _append(app)
        self._check_fault(app, appended, failing)
        error = status_of(app, "counts").last_error
        assert error is not None
        assert (error.type, error.message) == ("ValueError", f"no {failing}, please")
        assert "in fail" in error.stacktrace
        assert error.at.tzinfo is not None
        self._check_fault(app, appended, failing)  # Starting it again is no harm.
        broken = False
        self._check_mended(app)

    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_a_payload_that_can_not_be_decoded(self, app: App, kind: str) -> None:
        app.journal.append("a", [counted(n) for n in BEFORE])
        bad = [NewEvent({"n": "text"}, type="Counted") if n == 4 else counted(n) for n in range(9)]
        appended = app.journal.append("a", bad)
        self._register(app, kind, lambda n, _: None)
        fault = self._check_fault(app, appended, 4)
        assert "PayloadError" in str(fault)
        assert "`$.n`" in str(fault)

    def test_a_key_that_can_not_be_had(self, app: App) -> None:
        broken = True

        def key(n: int) -> Any:
            return n if n != 4 or not broken else ("two", "parts")

        self._register(app, "table", lambda n, _: None, key=key)
        self._check_fault(app, _append(app), 4)
        broken = False
        self._check_mended(app)

    @pytest.mark.parametrize("failing", [0, 4, EVENTS - 1])
    @pytest.mark.parametrize("column", BAD_VALUES)
    def test_a_value_that_can_not_be_stored(self, app: App, column: str, failing: int) -> None:
        broken = True

        def spoil(n: int, row: Any) -> None:
            if broken and n == failing:
                setattr(row, column, BAD_VALUES[column])

        self._register(app, "table", spoil)
        fault = self._check_fault(app, _append(app), failing)
        assert "counts" in str(fault)
        broken = False
        self._check_mended(app)

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

        fault = self._check_fault(app, _append(app), 4)
        assert "TypeError" in str(fault)

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("kind", ["table", "handler"])
    def test_whatever_a_handler_raises(self, app: App, kind: str, error: BaseException) -> None:
        def fail(n: int, _: Any) -> None:
            if n == 4:
                raise error

        self._register(app, kind, fail)
        fault = self._check_fault(app, _append(app), 4)
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

        self._check_fault(app, _append(app), 4)

    def test_a_statement_that_fails(self, app: App) -> None:
        broken = True

        def fail(n: int, tx: Any) -> None:
            if broken and n == 4:
                tx.execute("INSERT INTO no_such_table VALUES (1)")

        self._register(app, "handler", fail)
        fault = self._check_fault(app, _append(app), 4)
        assert "no_such_table" in str(fault)
        broken = False
        self._check_mended(app)

    def test_a_failed_statement_that_is_swallowed_is_harmless_or_a_fault(self, app: App) -> None:
        """Never may the rest of the batch be gone without a word."""

        def fail(n: int, tx: Any) -> None:
            if n == 4:
                try:
                    tx.execute("INSERT INTO no_such_table VALUES (1)")
                except Exception as error:
                    assert "no_such_table" in str(error)  # noqa: PT017

        self._register(app, "handler", fail)
        appended = _append(app)
        try:
            app.catch_up()
        except ProjectionFaulted as fault:
            assert "swallowed" in str(fault)  # noqa: PT017
            self._check_fault(app, appended, 4)
        else:
            assert self._counts(app) == [(n, 1) for n in (*range(EVENTS), *BEFORE)]

    @pytest.mark.parametrize("way", ["COMMIT", "ROLLBACK", "commit", "rollback"])
    def test_a_handler_that_ends_the_transaction(self, app: App, way: str) -> None:
        broken = True

        def end(n: int, tx: Any) -> None:
            if broken and n == 4:
                if way.isupper():
                    tx.execute(way)
                else:
                    getattr(tx.connection, way)()

        self._register(app, "handler", end)
        appended = _append(app)
        with pytest.raises(ProjectionFaulted):
            app.catch_up()
        assert status_of(app, "counts").position <= appended.positions[4 - 1]
        assert [n for n, _ in self._counts(app) if 4 < n < EVENTS] == []
        broken = False
        app.reset("counts")
        self._check_mended(app)

    def test_a_fault_stops_one_projection_alone(self, app: App) -> None:
        def fail(n: int, _: Any) -> None:
            if n == 4:
                raise ValueError("only here")

        self._register(app, "table", fail)
        self._register(app, "handler", lambda n, _: None, name="healthy")
        appended = _append(app)
        self._check_fault(app, appended, 4)
        healthy = status_of(app, "healthy")
        assert (healthy.state, healthy.position) == ("stopped", appended.position)
        assert healthy.last_error is None
        assert len(fetch(app, "SELECT n FROM healthy")) == len(BEFORE) + EVENTS

    def test_those_who_wait_are_told(self, app: App) -> None:
        def fail(n: int, _: Any) -> None:
            if n == 4:
                raise ValueError("no 4, please")

        self._register(app, "table", fail)
        appended = _append(app)
        with app.running() as running:
            with pytest.raises(ProjectionFaulted, match="counts"):
                app.wait_for("counts", appended.position, timeout_seconds=WAIT_SECONDS)
            app.wait_for("counts", appended.positions[3])  # What is in can be waited for.
            assert running.faulted == {"counts": "ValueError: no 4, please"}

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

    def _register(
        self,
        app: App,
        kind: str,
        effect: Effect,
        *,
        name: str = "counts",
        key: Callable[[int], Any] = lambda n: n,
    ) -> None:
        """A projection that counts how often it sees each number."""
        insert = f"INSERT INTO {name} (n) VALUES ({self.placeholder})"
        key_of = key
        if kind == "table":

            @app.projection(name=name)
            class ByRow(TableProjection[Count]):
                def key(self, event: Event[Any]) -> Any:
                    return key_of(event.data.n)

                @on(Counted)
                def counted(self, row: Count, event: Event[Counted]) -> None:
                    row.times += 1
                    effect(event.data.n, row)
        else:

            @app.projection(name=name)
            class BySql(Projection):
                tables = {name: f"CREATE TABLE {name} (n integer)"}

                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    tx.execute(insert, (event.data.n,))
                    effect(event.data.n, tx)

    def _counts(self, app: App) -> list[tuple[int, int]]:
        """Each number with how often it was seen."""
        try:
            return fetch(app, "SELECT n, times FROM counts ORDER BY n")
        except Exception:
            return fetch(app, "SELECT n, count(*) FROM counts GROUP BY n ORDER BY n")

    def _check_fault(self, app: App, appended: Appended, failing: int) -> ProjectionFaulted:
        with pytest.raises(ProjectionFaulted) as caught:
            app.catch_up()
        position = appended.positions[failing]
        assert f"'counts' stopped at position {position}" in str(caught.value)
        assert self._counts(app) == [(n, 1) for n in (*range(failing), *BEFORE)]
        status = status_of(app, "counts")
        assert status.state == "faulted"
        assert status.position == position - 1
        assert status.events_processed == len(BEFORE) + failing
        assert status.last_error is not None
        assert status.last_error.position == position
        assert status.last_error.event_type == "Counted"
        (event,) = app.journal.read_raw(after=position - 1, limit=1)
        assert status.last_error.event_id == event.id
        assert str(event.id) in str(caught.value)
        return caught.value

    def _check_mended(self, app: App) -> None:
        app.catch_up()
        assert self._counts(app) == [(n, 1) for n in (*range(EVENTS), *BEFORE)]
        status = status_of(app, "counts")
        assert (status.state, status.last_error) == ("stopped", None)
        assert status.events_processed == len(BEFORE) + EVENTS


def _append(app: App) -> Appended:
    """What is processed before, and then the batch."""
    app.journal.append("a", [Counted(n) for n in BEFORE])
    app.catch_up()
    return app.journal.append("a", [Counted(n) for n in range(EVENTS)])
