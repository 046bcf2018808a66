"""Row types read as tables: which are taken, which are refused and why, and their values."""

import enum
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, Optional
from uuid import UUID

import pytest

from holdfast import ConfigError
from holdfast.model.rows.row_type import TableSpec, check_identifier, table_of


@dataclass
class Account:
    id: str
    amount: int = 0
    seen: datetime | None = None
    tags: list[str] = field(default_factory=list)
    derived: int = field(default=0, init=False)


@dataclass
class Measured:
    value: float | None


class Text(str):
    pass


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def spec(annotation: Any, default: Any = None, **settings: Any) -> TableSpec:
    row_type = make_dataclass(
        "Row", [("id", str), ("value", annotation, field(default_factory=lambda: default))]
    )
    return table_of(row_type, name="rows", **settings)


def test_a_dataclass_is_a_table() -> None:
    table = table_of(Account, name="accounts")
    assert [(c.name, c.kind, c.optional) for c in table.columns] == [
        ("id", "str", False),
        ("amount", "int", False),
        ("seen", "datetime", True),
        ("tags", "JSON", False),
    ]
    assert (table.name, table.key) == ("accounts", ("id",))
    assert table.new_row(("a",)) == Account("a")
    assert table.key_of(Account("a")) == ("a",)
    assert table.values(Account("a", 3, tags=["x"])) == ("a", 3, None, '["x"]')
    assert table.row(("a", 3, None, ["x"])) == Account("a", 3, None, ["x"])


def test_new_rows_share_nothing() -> None:
    table = table_of(Account, name="accounts")
    table.new_row(("a",)).tags.append("x")
    assert table.new_row(("a",)).tags == []


def test_the_key_can_be_other_fields() -> None:
    @dataclass(kw_only=True, frozen=True, slots=True)
    class Day:
        total: int = 0
        day: date
        shop: int

    table = table_of(Day, name="days", key_fields=("shop", "day"))
    assert table.key == ("shop", "day")
    assert table.new_row((1, date.min)) == Day(day=date.min, shop=1)
    assert table.check_key((1, date.min)) == (1, date.min)
    with pytest.raises(ValueError, match="has 1 parts"):
        table.check_key((1,))
    with pytest.raises(TypeError, match="expected date"):
        table.check_key((1, "2024-01-01"))


ANNOTATIONS: dict[Any, tuple[str, bool]] = {
    str: ("str", False),
    float: ("float", False),
    bool: ("bool", False),
    Decimal: ("Decimal", False),
    UUID: ("UUID", False),
    bytes: ("bytes", False),
    dict: ("JSON", False),
    list[int]: ("JSON", False),
    dict[str, Any]: ("JSON", False),
    Any: ("JSON", True),
    Any | None: ("JSON", True),
    int | None: ("int", True),
    Optional[date]: ("date", True),  # noqa: UP045
    None | dict[str, int]: ("JSON", True),
}
GOOD = {
    "str": "x",
    "float": 1.5,
    "bool": True,
    "Decimal": Decimal(1),
    "UUID": UUID(int=1),
    "bytes": b"x",
    "JSON": {},
    "int": 1,
    "date": date.min,
}


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_the_kinds_of_columns(annotation: Any) -> None:
    kind, optional = ANNOTATIONS[annotation]
    good = [] if annotation == list[int] else GOOD[kind]
    column = spec(annotation, good).columns[1]
    assert (column.kind, column.optional) == (kind, optional)
    assert column.described() == (f"{kind} | None" if optional else kind)


@pytest.mark.parametrize(
    "annotation", [object, complex, int | str, set[str], tuple[int, ...], Account, timedelta, None]
)
def test_other_annotations_are_refused(annotation: Any) -> None:
    with pytest.raises(ConfigError, match=r"field 'value' is .*; a column is one of str, int"):
        spec(annotation)


REFUSED: dict[str, Any] = {
    "must be a dataclass": [int, "Row", None, object(), Account("a"), type("Plain", (), {})],
    "has no fields": [make_dataclass("Row", [])],
    "field 'n' needs a default": [make_dataclass("Row", [("id", str), ("n", int)])],
    "is reserved": [make_dataclass("Row", [("id", str), ("_position", int, 0)])],
    "are reserved": [
        make_dataclass("Row", [("id", str), ("holdfast_x", int, 0)]),
        make_dataclass("Row", [("id", str), ("PG_x", int, 0)]),
    ],
    "a name has 1 to 63 bytes": [make_dataclass("Row", [("id", str), ("ü" * 32, int, 0)])],
    "importable names": [make_dataclass("Row", [("id", "Nowhere")])],
    "differ only in case": [
        make_dataclass("Row", [("id", str), ("amount", int, 0), ("Amount", int, 0)]),
        make_dataclass("Row", [("id", str), ("_POSITION", int, 0)]),
    ],
    "a key can't be optional, float or JSON": [
        make_dataclass("Row", [("id", annotation)])
        for annotation in (str | None, float, dict[str, int], Any)
    ],
}


@pytest.mark.parametrize(
    ("reason", "row_type"),
    [(reason, one) for reason, several in REFUSED.items() for one in several],
)
def test_row_types_that_are_refused(reason: str, row_type: Any) -> None:
    with pytest.raises(ConfigError, match=reason):
        table_of(row_type, name="rows")


@pytest.mark.parametrize("key_fields", [("nothing",), ("id", "nothing"), ("id", "id")])
def test_keys_that_are_refused(key_fields: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="key_fields names"):
        table_of(Account, name="rows", key_fields=key_fields)


def test_a_row_that_needs_more_than_its_fields_is_refused() -> None:
    @dataclass
    class Seeded:
        id: str
        seed: InitVar[int]

        def __post_init__(self, seed: int) -> None:
            raise NotImplementedError

    with pytest.raises(ConfigError, match="Seeded"):
        table_of(Seeded, name="rows")


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (int, None),
        (int, "1"),
        (int, 2**63),
        (int, True),
        (list, None),
        (list, {}),
        (dict[str, int], {"a": "x"}),
        (dict, {"a": float("nan")}),
        (Any, float("inf")),
    ],
)
def test_a_default_that_does_not_fit_is_refused(annotation: Any, default: Any) -> None:
    with pytest.raises(ConfigError, match="default of field 'value'"):
        spec(annotation, default)


def test_json_that_nothing_can_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"row type 'Row': field 'value'.* union"):
        spec(list[date | datetime | str], [])


@pytest.mark.parametrize(
    "name", ["", "x" * 64, "nul\0", "holdfast_x", "SQLITE_x", "pg_x", "\ud800"]
)
def test_impossible_table_names(name: str) -> None:
    with pytest.raises(ConfigError):
        check_identifier(name, "table")
    with pytest.raises(ConfigError):
        table_of(Account, name=name)


VALUES: list[tuple[Any, Any, Any]] = [
    (str, Text("x"), "x"),
    (str, Colour.RED, "red"),
    (float, 3, 3.0),
    (float, float("inf"), float("inf")),
    (Decimal, Decimal("1.50"), Decimal("1.50")),
    (
        datetime,
        datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        datetime(2024, 1, 1, tzinfo=UTC),
    ),
    (int, -(2**63), -(2**63)),
    (dict[str, Any], {"b": 1, "a": (1, None)}, '{"b":1,"a":[1,null]}'),
    (list[str], ["\\u0000"], '["\\\\u0000"]'),
    (int | None, None, None),
]


@pytest.mark.parametrize(("annotation", "value", "stored"), VALUES)
def test_values_that_are_taken(annotation: Any, value: Any, stored: Any) -> None:
    (column,) = spec(annotation, value).columns[1:]
    assert column.check(value) == stored
    assert type(column.check(value)) is type(stored)


REFUSED_VALUES: list[Any] = [
    (str, "nul \0", "NUL"),
    (str, 1, "expected str, got int"),
    (int, 2**63, "64 bits"),
    (int, -(2**63) - 1, "64 bits"),
    (int, 1.0, "expected int, got float"),
    (int, True, "expected int, got bool"),
    (int, Level.HIGH, "expected int, got Level"),
    (float, True, "expected float, got bool"),
    (float, float("nan"), "NaN"),
    pytest.param(float, 10**400, "too large", id="large"),
    (bool, 1, "expected bool, got int"),
    (Decimal, Decimal("NaN"), "NaN"),
    (Decimal, Decimal("Infinity"), "Infinity"),
    (Decimal, 1, "expected Decimal, got int"),
    (date, datetime(2024, 1, 1, tzinfo=UTC), "expected date, got datetime"),
    (datetime, date(2024, 1, 1), "expected datetime, got date"),
    (datetime, datetime(2024, 1, 1), "time zone"),
    (datetime, datetime.min.replace(tzinfo=timezone(timedelta(hours=2))), "out of range"),
    (UUID, str(UUID(int=1)), "expected UUID, got str"),
    (bytes, bytearray(b"x"), "expected bytes, got bytearray"),
    (dict[str, Any], {"a": object()}, "unsupported"),
    (dict[str, Any], {"a": "nul \0"}, "NUL"),
    (list[str], ["\\\0"], "NUL"),
    (list, {"a": 1}, "Expected `array`"),
    (list[int], ["x"], r"Expected `int`, got `str` - at `\$\[0\]`"),
    (dict, "text", "Expected `object`"),
    (list, [None, float("nan")], r"nan at `\$\[1\]` has no place in JSON"),
    (dict[str, float | None], {"a": float("-inf")}, r"-inf at `\$\.a` has no place in JSON"),
    (list[Measured], [Measured(float("inf"))], r"inf at `\$\[0\]\.value` has no place in JSON"),
    (Any, float("nan"), r"nan at `\$` has no place in JSON"),
]


@pytest.mark.parametrize(("annotation", "value", "reason"), REFUSED_VALUES)
def test_values_that_are_refused_name_row_and_column(
    annotation: Any, value: Any, reason: str
) -> None:
    row_type = make_dataclass("Row", [("id", str), ("value", annotation | None, None)])
    table = table_of(row_type, name="rows")
    with pytest.raises(ValueError, match=reason) as caught:
        table.values(row_type("a", value))
    assert "table 'rows', row ('a',): column 'value'" in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"), [("1.50", "1.5"), ("0", "-0"), ("1000", "1E+3"), ("0.10", "1E-1")]
)
def test_equal_decimals_are_one_key(one: str, other: str) -> None:
    table = table_of(make_dataclass("Row", [("id", Decimal)]), name="rows")
    keys = [table.check_key((Decimal(text),))[0] for text in (one, other)]
    assert str(keys[0]) == str(keys[1])
    assert keys[0] == Decimal(one)


@pytest.mark.parametrize("value", [None, {"a": 1}, ["x"], [float("nan")]])
def test_a_row_is_refused_with_json_of_another_type(value: Any) -> None:
    table = spec(list[int], [])
    row = table.new_row(("a",))
    row.value = value
    with pytest.raises(ValueError, match=r"column 'value' \(JSON\) can't hold"):
        table.checked([row])
    assert row.value is value


def test_the_definition_tells_what_rows_depend_on() -> None:
    table = table_of(Account, name="accounts")
    assert table.definition() == (
        '{"key": ["id"], "columns": {"id": "str", "amount": "int", '
        '"seen": "datetime | None", "tags": "JSON"}}'
    )


def test_a_row_that_has_lost_a_field_is_refused() -> None:
    table, row = table_of(Account, name="accounts"), Account("a")
    del row.id
    with pytest.raises(ValueError, match=r"table 'accounts' has lost a field: .*'id'"):
        table.checked([row])


def test_attributes_that_are_no_fields() -> None:
    @dataclass
    class Derived(Account):
        def __post_init__(self) -> None:
            self.own = 1

        @cached_property
        def double(self) -> int:
            return 2 * self.amount

    @dataclass(slots=True)
    class Slotted:
        id: str

    table = table_of(Derived, name="t")
    row = Derived("a")
    assert row.double == 0
    table.checked([row])
    row.totals = 1  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"'t', row \('a',\): .* 'totals', which is not a field"):
        table.checked([Derived("b"), row])
    table_of(Slotted, name="t").checked([Slotted("a")])
