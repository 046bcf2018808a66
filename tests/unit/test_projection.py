"""Projection classes, compiled: what is taken, and that every mistake is an error at once."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

import msgspec
import pytest

from holdfast import (
    App,
    ConfigError,
    Event,
    EventTypes,
    NewEvent,
    Park,
    Poll,
    Projection,
    TableProjection,
    Tx,
    on,
)
from holdfast.model.compile_projection import compile_projection, snake_case
from holdfast.model.definition import Handle
from holdfast.model.rows.row_type import TableSpec

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Credited:
    amount: int


class Debited(msgspec.Struct):
    amount: int


@dataclass
class Balance:
    account: str
    amount: int = 0


@dataclass
class Numbered:
    number: int


class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        row.amount += event.data.amount


class Log(Projection):
    tables: ClassVar = {"log": "CREATE TABLE log (n integer)", "balance": Balance}

    @on("*")
    async def any(self, event: Event[Any], tx: Tx) -> None:
        return None


def compiled(cls: Any, **settings: Any) -> Any:
    return compile_projection(cls, types=EventTypes(), **settings)


def test_a_table_projection() -> None:
    definition = compiled(Balances)
    assert definition.name == "balances"
    assert list(definition.handlers) == ["Credited"]
    assert definition.catch_all is None
    assert (definition.strict, definition.poll) == (False, Poll())
    assert (definition.kind.table.name, definition.kind.table.row_type) == ("balances", Balance)
    assert definition.handles("Credited")
    assert not definition.handles("Other")
    assert definition.handler_of("Other") is None


def test_a_handler_projection() -> None:
    definition = compiled(Log, name="audit", strict=True, poll=Poll(interval_seconds=2))
    assert (definition.name, definition.strict) == ("audit", True)
    assert definition.poll.interval_seconds == 2
    assert isinstance(definition.kind, Handle)
    assert definition.tables["log"] == "CREATE TABLE log (n integer)"
    assert isinstance(definition.tables["balance"], TableSpec)
    assert definition.handlers == {}
    assert definition.handler_of("Anything") == definition.catch_all


def test_strictness_names_projection_and_type() -> None:
    definition = compiled(Balances, strict=True)
    with pytest.raises(ConfigError, match=r"'balances' is strict and has no handler for .*'Other'"):
        definition.handler_of("Other")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Balances", "balances"),
        ("AccountBalances", "account_balances"),
        ("HTTPRequests", "http_requests"),
        ("V2Balances", "v2_balances"),
        ("Größe", "größe"),
        ("already_snake", "already_snake"),
    ],
)
def test_names_are_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_handlers_are_inherited_and_replaced() -> None:
    class More(Balances):
        @on(Debited)
        def debited(self, row: Balance, event: Event[Debited]) -> None:
            row.amount -= event.data.amount

        @on(Credited)
        def credited(self, row: Balance, event: Event[Credited]) -> None:
            row.amount += 2 * event.data.amount

    definition = compiled(More)
    assert set(definition.handlers) == {"Credited", "Debited"}
    row = Balance("a")
    definition.handlers["Credited"](row, Event(data=Credited(1), **_event()))
    assert row.amount == 2


def test_a_handler_that_is_replaced_without_a_mark_is_refused() -> None:
    class Forgotten(Balances):
        def credited(self, row: Balance, event: Event[Credited]) -> None:
            row.amount += 2 * event.data.amount

    with pytest.raises(ConfigError, match=r"'credited' .*@on"):
        compiled(Forgotten)


def test_a_generic_base_names_the_row_type() -> None:
    R = TypeVar("R")

    class Base(TableProjection[Balance], Generic[R]):
        @on(Credited)
        def credited(self, row: Balance, event: Event[Credited]) -> None:
            return None

    class Concrete(Base[int]):
        pass

    assert compiled(Concrete).kind.table.row_type is Balance


def test_marks_add_up() -> None:
    class Both(TableProjection[Balance]):
        @on(Credited)
        @on(Debited, "Other")
        def any(self, row: Balance, event: Event[Any]) -> None:
            return None

    assert set(compiled(Both).handlers) == {"Credited", "Debited", "Other"}


def passing_on(function: F) -> F:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper  # type: ignore[return-value]


def test_a_decorated_coroutine_is_run(store_app: App) -> None:
    ran = []

    @store_app.projection
    class Decorated(Projection):
        @on("Counted")
        @passing_on
        async def counted(self, event: Event[Any], tx: Tx) -> None:
            ran.append(event.version)

    store_app.journal.append("a", [NewEvent({}, type="Counted")])
    store_app.catch_up()
    assert ran == [1]


@pytest.fixture
def store_app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        yield app


@pytest.mark.parametrize("types", [(), (1,), (None,), (Credited, 2.5), (Credited(1),)])
def test_marks_take_classes_and_names(types: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match="@on"):
        on(*types)


@pytest.mark.parametrize("cls", [int, Balance, Balances(), None, "Balances"])
def test_what_is_no_projection_is_refused(cls: Any) -> None:
    with pytest.raises(ConfigError, match=r"not a projection; derive it from TableProjection\[Row"):
        compiled(cls)


@pytest.mark.parametrize("name", ["", "x" * 64, "nul\0", "holdfast_x"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="projection"):
        compiled(Balances, name=name)


def mistakes() -> dict[str, Any]:
    class NoHandlers(TableProjection[Balance]):
        def credited(self, row: Balance, event: Event[Any]) -> None:
            return None

    class NoRowType(TableProjection):  # type: ignore[type-arg]
        @on(Credited)
        def credited(self, row: Balance, event: Event[Any]) -> None:
            return None

    class PlainRowType(TableProjection[dict[str, int]]):
        @on(Credited)
        def credited(self, row: Any, event: Event[Any]) -> None:
            return None

    class Arguments(TableProjection[Balance]):
        def __init__(self, needed: int) -> None:
            raise NotImplementedError

        @on(Credited)
        def credited(self, row: Balance, event: Event[Any]) -> None:
            return None

    class TwoHandlers(TableProjection[Balance]):
        @on(Credited)
        def one(self, row: Balance, event: Event[Any]) -> None:
            return None

        @on("Credited")
        def two(self, row: Balance, event: Event[Any]) -> None:
            return None

    class TwoCatchAlls(TableProjection[Balance]):
        @on("*")
        def one(self, row: Balance, event: Event[Any]) -> None:
            return None

        @on("*")
        def two(self, row: Balance, event: Event[Any]) -> None:
            return None

    class TooFew(TableProjection[Balance]):
        @on(Credited)
        def credited(self, event: Event[Any]) -> None:
            return None

    class TooMany(Projection):
        @on(Credited)
        def credited(self, event: Event[Any], tx: Tx, more: int) -> None:
            return None

    class NoEvent(Projection):
        @on(int)
        def credited(self, event: Event[Any], tx: Tx) -> None:
            return None

    class OfTheClass(Projection):
        @on(Debited)
        def debited(self, event: Event[Any], tx: Tx) -> None:
            return None

        @classmethod
        @on(Credited)
        def credited(cls, event: Event[Any], tx: Tx) -> None:
            return None

    class MarkedFromOutside(Projection):
        @on(Credited)
        @staticmethod
        def credited(event: Event[Any], tx: Tx) -> None:
            return None

    class Generator(Projection):
        @on(Credited)
        def credited(self, event: Event[Any], tx: Tx) -> Iterator[int]:
            yield 1

    class AsyncGenerator(Projection):
        @on(Credited)
        async def credited(self, event: Event[Any], tx: Tx) -> AsyncIterator[int]:
            yield 1

    class CompositeWithoutKey(TableProjection[Balance]):
        key_fields = ("account", "amount")

        @on(Credited)
        def credited(self, row: Balance, event: Event[Any]) -> None:
            return None

    class NumberWithoutKey(TableProjection[Numbered]):
        @on(Credited)
        def credited(self, row: Numbered, event: Event[Any]) -> None:
            return None

    class BadTableName(Projection):
        tables: ClassVar = {"holdfast_mine": "CREATE TABLE holdfast_mine (n integer)"}

        @on(Credited)
        def credited(self, event: Event[Any], tx: Tx) -> None:
            return None

    class BadTable(Projection):
        tables: ClassVar = {"mine": 17}  # type: ignore[dict-item]

        @on(Credited)
        def credited(self, event: Event[Any], tx: Tx) -> None:
            return None

    return {
        "has no handlers; mark its methods": NoHandlers,
        r"name the row type, as in TableProjection\[Balance\]": NoRowType,
        "must be a dataclass": PlainRowType,
        r"Arguments\(\) failed": Arguments,
        "two handlers for event type 'Credited'": TwoHandlers,
        r"two handlers for event type '\*'": TwoCatchAlls,
        r"handler 'credited' must take \(self, row, event\)": TooFew,
        r"handler 'credited' must take \(self, event, tx\)": TooMany,
        "is for int, which can't be an event": NoEvent,
        "handler 'credited' must be a method, not a classmethod": OfTheClass,
        "handler 'credited' must be a method, not a staticmethod": MarkedFromOutside,
        "handler 'credited' is a generator": Generator,
        "is a generator and would never run": AsyncGenerator,
        r"only a single str key can be the event's stream; define key": CompositeWithoutKey,
        r"its key is \('number',\)": NumberWithoutKey,
        "are reserved": BadTableName,
        "row type 17 of table 'mine' must be a dataclass": BadTable,
    }


@pytest.mark.parametrize("reason", mistakes())
def test_mistakes_are_errors_at_once(reason: str) -> None:
    cls = mistakes()[reason]
    with pytest.raises(ConfigError, match=reason):
        compiled(cls)


def test_two_projections_can_not_share(store_app: App) -> None:
    store_app.projection(Log)

    class Other(Log):
        pass

    with pytest.raises(ConfigError, match="'log' and 'other' both declare table"):
        store_app.projection(Other)
    with pytest.raises(ConfigError, match="two projections are named 'log'"):
        store_app.projection(name="log")(Balances)
    assert store_app.projections == ("log",)


def _event() -> dict[str, Any]:
    return {
        "position": 1,
        "stream": "a",
        "version": 1,
        "id": UUID(int=1),
        "type": "Credited",
        "metadata": {},
        "recorded_at": datetime(2024, 1, 1, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"policy": Park()}, r"not a Policy; .* Policy\(on_error=Park\(\)\)"),
        ({"poll": 3}, "poll is 3, not a Poll"),
    ],
)
def test_settings_of_another_type_are_refused(settings: dict[str, Any], reason: str) -> None:
    class Any_(Projection):
        @on("Counted")
        def counted(self, event: Event[Any], tx: Tx) -> None: ...

    with App("sqlite:///:memory:") as app, pytest.raises(ConfigError, match=reason):
        app.projection(**settings)(Any_)
