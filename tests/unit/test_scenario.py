"""given, when, expect: what users test their projections with."""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import msgspec
import pytest

from holdfast import (
    DELETE,
    ConfigError,
    Event,
    EventTypes,
    NewEvent,
    Park,
    PayloadError,
    Policy,
    Projection,
    ProjectionFaulted,
    TableProjection,
    Tx,
    on,
)
from holdfast.testing import FixedClock, given


@dataclass
class Credited:
    amount: int


@dataclass
class Closed:
    pass


@dataclass
class Balance:
    account: str
    amount: int = 0
    tags: list[str] = field(default_factory=list)


class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        row.amount += event.data.amount

    @on(Closed)
    def closed(self, row: Balance, event: Event[Closed]) -> object:
        return DELETE


class Entries(Projection):
    tables: ClassVar = {
        "entry": "CREATE TABLE entry (account TEXT, amount INTEGER, note TEXT)",
        "balance": Balance,
    }

    @on(Credited)
    def credited(self, event: Event[Credited], tx: Tx) -> None:
        tx.execute("INSERT INTO entry VALUES (?, ?, 'x')", (event.stream, event.data.amount))

    @on(Closed)
    async def closed(self, event: Event[Closed], tx: Tx) -> None:
        tx.execute("INSERT INTO balance (account, amount, tags) VALUES (?, 1, '[]')", ["a"])


def test_the_rows_are_as_expected_in_any_order() -> None:
    given(
        ("account-1", Credited(5)),
        ("account-2", Credited(7)),
        ("gone", Credited(1)),
        ("account-1", Credited(1)),
        ("gone", Closed()),
    ).when(Balances).expect(Balance("account-2", 7), Balance("account-1", 6))


def test_rows_can_be_checked_freely() -> None:
    found = given(("b", Credited(1)), ("a", Credited(2)), ("c", Credited(3))).when(Balances)
    assert found.rows == [Balance("a", 2), Balance("b", 1), Balance("c", 3)]


def test_nothing_given_nothing_expected() -> None:
    given().when(Balances).expect()


def test_the_difference_is_readable() -> None:
    found = given(("a", Credited(5)), ("b", Credited(7)), ("c", Credited(1))).when(Balances)
    with pytest.raises(AssertionError) as caught:
        found.expect(Balance("a", 6, ["vip"]), Balance("c", 1), Balance("d", 2))
    assert str(caught.value).splitlines() == [
        "table 'balances' is not as expected",
        "  'a': amount is 5, expected 6; tags is [], expected ['vip']",
        "  missing:    Balance(account='d', amount=2, tags=[])",
        "  unexpected: Balance(account='b', amount=7, tags=[])",
    ]


def test_a_row_expected_twice_is_missing_once() -> None:
    found = given(("a", Credited(5))).when(Balances)
    with pytest.raises(AssertionError, match="missing: "):
        found.expect(Balance("a", 5), Balance("a", 5))


def test_rows_of_another_type_are_a_mistake_in_the_test() -> None:
    found = given(("a", Credited(5))).when(Balances)
    wrong: Any = ("a", 5)
    with pytest.raises(TypeError, match=r"rows of type Balance, not \('a', 5\)"):
        found.expect(wrong)


def test_the_same_events_can_be_projected_again() -> None:
    events = given(("a", Credited(5)))
    events.when(Balances).expect(Balance("a", 5))
    events.when(Balances, name="others").expect(Balance("a", 5))
    events.later(0, ("a", Credited(1))).when(Balances).expect(Balance("a", 6))
    events.when(Balances).expect(Balance("a", 5))


def test_tables_of_a_projection_as_tuples_and_dicts() -> None:
    found = given(("a", Credited(5)), ("b", Credited(7)), ("x", Closed())).when(Entries)
    entry = found.table("entry")
    assert entry.rows == [("a", 5, "x"), ("b", 7, "x")]
    assert entry.dicts[0] == {"account": "a", "amount": 5, "note": "x"}
    entry.expect(("b", 7, "x"), ("a", 5, "x"))
    entry.expect({"account": "b", "amount": 7}, {"account": "a", "amount": 5})
    found.table("balance").expect(("a", 1, []))
    found.table("balance").expect({"account": "a", "amount": 1, "tags": []})


def test_the_difference_of_tables_is_readable() -> None:
    entry = given(("a", Credited(5)), ("b", Credited(7))).when(Entries).table("entry")
    with pytest.raises(AssertionError) as caught:
        entry.expect(("a", 5, "x"), ("a", 5, "x"))
    assert str(caught.value).splitlines() == [
        "table 'entry' is not as expected",
        "  missing:    ('a', 5, 'x')",
        "  unexpected: ('b', 7, 'x')",
    ]
    with pytest.raises(AssertionError, match=r"unexpected: \{'amount': 7\}"):
        entry.expect({"amount": 5})
    with pytest.raises(AssertionError, match="unexpected"):
        entry.expect()
    with pytest.raises(AssertionError, match=r"missing: +\{'no_such_column': 5\}"):
        entry.expect({"no_such_column": 5})
    with pytest.raises(LookupError, match=r"no table 'entries'; it has: entry, balance"):
        given().when(Entries).table("entries")


@pytest.mark.parametrize("projection", [Balances, Entries])
def test_what_a_handler_raises_is_raised_with_the_event_in_a_note(projection: Any) -> None:
    class Failing(projection):
        @on("Odd")
        def odd(self, one: Any, other: Any) -> None:
            raise ZeroDivisionError("in the handler")

    with pytest.raises(ZeroDivisionError, match="in the handler") as caught:
        given(("a", Credited(1)), ("a", NewEvent({}, type="Odd"))).when(Failing)
    (note,) = caught.value.__notes__
    assert "'failing' stopped at position 2 on 'Odd' event" in note
    assert caught.traceback[-1].name == "odd"


def test_an_interrupt_is_raised_as_a_fault() -> None:
    class Leaving(Balances):
        @on("Odd")
        def odd(self, row: Balance, event: Event[Any]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(ProjectionFaulted, match="KeyboardInterrupt") as caught:
        given(("a", NewEvent({}, type="Odd"))).when(Leaving)
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)


def test_wrong_uses_are_refused() -> None:
    class NoHandlers(TableProjection[Balance]):
        pass

    wrong: Any = Credited(1)
    with pytest.raises(TypeError, match="pairs"):
        given(wrong)
    with pytest.raises(TypeError, match="pairs"):
        given((wrong, wrong))
    with pytest.raises(ConfigError, match="no handlers"):
        given().when(NoHandlers)
    with pytest.raises(PayloadError, match="no type name"):
        given(("a", {"amount": 1})).when(Balances)
    with pytest.raises(ConfigError, match="strict"):
        given(("a", NewEvent({}, type="Odd"))).when(Balances, strict=True)


def test_events_are_recorded_when_the_clock_says() -> None:
    @dataclass(frozen=True)
    class Seen:
        stream: str
        first: datetime | None = None
        last: datetime | None = None

    class Sightings(TableProjection[Seen]):
        @on("*")
        def any(self, row: Seen, event: Event[Any]) -> Seen:
            return replace(row, first=row.first or event.recorded_at, last=event.recorded_at)

    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    clock = FixedClock(noon)
    events = given(("a", Credited(1)), ("b", Credited(1)), clock=clock)
    events.later(90, ("a", Credited(1))).later(0.5, ("a", Credited(1))).when(Sightings).expect(
        Seen("a", noon, datetime(2024, 2, 29, 12, 1, 30, 500_000, tzinfo=UTC)),
        Seen("b", noon, noon),
    )
    assert clock.now() == noon


def test_upcasters_and_names_of_an_app() -> None:
    class Renamed(msgspec.Struct):
        cents: int

    types = EventTypes()
    types.register(Renamed, name="credited", version=2)

    @types.upcaster("credited", from_version=1)
    def to_cents(data: dict[str, Any]) -> dict[str, Any]:
        return {"cents": 100 * data["amount"]}

    class Amounts(TableProjection[Balance]):
        @on(Renamed)
        def renamed(self, row: Balance, event: Event[Renamed]) -> None:
            row.amount += event.data.cents

    def old(data: dict[str, Any]) -> NewEvent:
        return NewEvent(data, type="credited", metadata={"schema_version": 1})

    given(("a", Renamed(5)), ("a", old({"amount": 2}))).when(Amounts, events=types).expect(
        Balance("a", 205)
    )
    with pytest.raises(PayloadError, match="KeyError"):
        given(("a", old({}))).when(Amounts, events=types)


def test_values_come_back_as_they_are_stored() -> None:
    @dataclass
    class Row:
        day: datetime
        amount: Decimal = Decimal(0)
        share: float = 0.0

    class Days(TableProjection[Row]):
        def key(self, event: Event[Any]) -> datetime:
            return event.recorded_at

        @on(Credited)
        def credited(self, row: Row, event: Event[Credited]) -> None:
            row.amount = Decimal("1.50")
            row.share = 3

    found = given(("a", Credited(1))).when(Days)
    (row,) = found.rows
    assert (type(row.share), row.day) == (float, FixedClock().now())
    found.expect(Row(FixedClock().now(), Decimal("1.5"), 3))


class Picky(Balances):
    """Refuses amounts below 0, and some events twice."""

    failures: ClassVar[list[datetime]]

    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        if event.data.amount < 0 or (event.data.amount == 2 and len(self.failures) < 2):
            self.failures.append(datetime.now(UTC))
            raise ValueError(f"no {event.data.amount}")
        row.amount += event.data.amount


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    monkeypatch.setattr(Picky, "failures", [], raising=False)
    return Picky.failures


def test_a_policy_parks_and_skips(failures: list[datetime]) -> None:
    events = given(("a", Credited(1)), ("a", Credited(-1)), ("a", Credited(4)), ("b", Credited(8)))
    with pytest.raises(ValueError, match="no -1"):
        events.when(Picky)
    parked = events.when(Picky, policy=Policy(on_error=Park()))
    parked.expect(Balance("a", 1), Balance("b", 8))
    assert [(i.position, i.status, i.error_message) for i in parked.queue] == [
        (2, "dead", "no -1"),
        (3, "pending", None),
    ]
    skipped = events.when(Picky, policy=Policy.best_effort())
    skipped.expect(Balance("a", 5), Balance("b", 8))
    assert [(item.position, item.status) for item in skipped.queue] == [(2, "skipped")]
    assert len(failures) == 3


def test_retries_don_t_wait(failures: list[datetime]) -> None:
    policy = Policy.retry_then_park(delay_seconds=600)
    done = given(("a", Credited(2)), ("b", Credited(8))).when(Picky, policy=policy)
    done.expect(Balance("a", 2), Balance("b", 8))
    assert done.queue == []
    assert (failures[-1] - failures[0]).total_seconds() < 60


def test_importing_it_does_not_import_pytest() -> None:
    code = "import sys, holdfast.testing; print([m for m in sys.modules if 'pytest' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
