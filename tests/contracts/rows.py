"""What a store promises about rows: every kind of value comes back as it went in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import hypothesis
import pytest
from hypothesis import strategies as st

from holdfast.errors import Fenced
from holdfast.model.definition import Fold
from holdfast.model.rows.row_type import TableSpec
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import RowChanges
from tests.contracts.samples import table_definition

BERLIN = ZoneInfo("Europe/Berlin")
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "str": (str, ["", "text", 'it\'s "quoted" \\ %s ? :x', " 💡 e\u0301 \n", "x" * 20_000]),
    "int": (int, [0, -1, 32_767, 32_768, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]),
    "float": (float, [0.0, -0.0, 0.1, -1.5, 1e23, 5e-324, 1.8e308, float("-inf"), 3.0]),
    "bool": (bool, [True, False]),
    "Decimal": (Decimal, [Decimal(d) for d in ("0", "1.50", "-0.00001", "1E+10", "9" * 60)]),
    "date": (date, [date.min, date(2024, 2, 29), date.max]),
    "datetime": (
        datetime,
        [
            datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
            datetime(2024, 7, 1, tzinfo=BERLIN),
            datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
            datetime(1800, 1, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
            datetime.min.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
        ],
    ),
    "UUID": (UUID, [UUID(int=0), UUID(int=2**128 - 1)]),
    "bytes": (bytes, [b"", b"\0\xff'\\", bytes(range(256)) * 100]),
    "dict": (dict[str, Any], [{}, {"b": 1, "a": [None, True, 1.5, {"": "💡'\\"}]}, {"n": 2**70}]),
    "list": (list[Any], [[], [1, [2, [3]], {"a": None}], ["x"] * 1_000]),
    "Any": (Any, [None, "null", "", 0, -1.5, False, [None], {"a": None}]),
}
KEY_KINDS = [kind for kind in VALUES if kind not in ("float", "dict", "list", "Any")]
NAMES = [
    'say "hi"',
    "Order",
    "select",
    "größe 💡",
    "50% off %s",
    "a.b",
    "it's",
    "back\\slash",
    "x; DROP TABLE holdfast_event --",
    "excluded",
    "t",
    ":name",
    "?",
    "n" * 63,
]


@dataclass
class Everything:
    """A row with a column of every kind."""

    id: str
    text: str | None = None
    number: int | None = None
    real: float | None = None
    flag: bool | None = None
    exact: Decimal | None = None
    day: date | None = None
    moment: datetime | None = None
    uuid: UUID | None = None
    raw: bytes | None = None
    mapping: dict[str, Any] | None = None


class RowContract:
    """Needs a fixture `open_session`: opens sessions on one empty, migrated store."""

    @pytest.fixture
    def open_session(self) -> Callable[[], Session]:
        raise NotImplementedError

    @pytest.fixture
    def session(self, open_session: Callable[[], Session]) -> Session:
        return open_session()

    @pytest.mark.parametrize("kind", VALUES)
    def test_values_of_a_kind_come_back(self, session: Session, kind: str) -> None:
        annotation, values = VALUES[kind]
        value = field(default_factory=lambda: values[0])
        row_type = make_dataclass(
            "Row", [("id", str), ("value", annotation, value), ("maybe", annotation | None, None)]
        )
        table = _prepared(session, row_type)
        rows = [row_type(str(n), value, value) for n, value in enumerate(values)]
        rows.append(row_type("none", values[0], None))
        _write(session, table, rows)
        found = _load(session, table, [(row.id,) for row in rows])
        for row in rows:
            for name in ("value", "maybe"):
                wanted, value = as_stored(getattr(row, name)), getattr(found[row.id], name)
                assert value == wanted
                assert type(value) is type(wanted)
        if kind == "datetime":
            assert {row.value.utcoffset() for row in found.values()} == {timedelta(0)}

    @pytest.mark.parametrize("kind", VALUES)
    def test_a_batch_of_nothing_but_none(self, session: Session, kind: str) -> None:
        annotation, values = VALUES[kind]
        row_type = make_dataclass("Row", [("id", str), ("maybe", annotation | None, None)])
        table = _prepared(session, row_type)
        _write(session, table, [row_type("a"), row_type("b")])
        assert _load(session, table, [("a",), ("b",)]) == {"a": row_type("a"), "b": row_type("b")}
        _write(session, table, [row_type("a", values[-1])], position=2)
        _write(session, table, [row_type("a", None)], position=3)
        assert _load(session, table, [("a",)]) == {"a": row_type("a", None)}

    @pytest.mark.parametrize("kind", KEY_KINDS)
    def test_values_of_a_kind_are_keys(self, session: Session, kind: str) -> None:
        annotation, values = VALUES[kind]
        keys = [as_stored(value) for value in values if len(str(value)) < 1_000]
        row_type = make_dataclass("Row", [("id", annotation), ("n", int, 0)])
        table = _prepared(session, row_type)
        _write(session, table, [row_type(key, n) for n, key in enumerate(keys)])
        _write(session, table, [row_type(keys[0], 100)], position=2)
        found = _load(session, table, [(key,) for key in keys])
        assert [found[key].n for key in keys] == [100, *range(1, len(keys))]
        with session.transaction() as work:
            work.delete_rows(table, [table.check_key((keys[0],))])
        assert set(_load(session, table, [(key,) for key in keys])) == set(keys[1:])

    def test_equal_keys_are_one_row(self, session: Session) -> None:
        amounts = _prepared(session, make_dataclass("Row", [("id", Decimal), ("n", int, 0)]))
        _write(session, amounts, [amounts.row_type(Decimal("1.50"), 1)])
        _write(session, amounts, [amounts.row_type(Decimal("1.5"), 2)], position=2)
        found = _load(session, amounts, [(Decimal("1.500"),)])
        assert [row.n for row in found.values()] == [2]

    def test_json_is_typed_as_the_row_type_says(self, session: Session) -> None:
        row_type = make_dataclass(
            "Row",
            [
                ("id", str),
                ("by_number", dict[int, str], field(default_factory=dict)),
                ("moments", list[datetime] | None, None),
                ("things", list[Everything], field(default_factory=list)),
            ],
        )
        table = _prepared(session, row_type)
        moment = datetime(2024, 2, 29, tzinfo=UTC)
        row = row_type("a", {1: "one", -2: "two"}, [moment], [Everything("x", moment=moment)])
        _write(session, table, [row])
        assert _load(session, table, [("a",)]) == {"a": row}

    def test_composite_keys(self, session: Session) -> None:
        row_type = make_dataclass("Row", [("n", int, 0), ("day", date), ("who", str)], kw_only=True)
        table = _prepared(session, row_type, key_fields=("who", "day"))
        days = [date(2024, 1, n) for n in (1, 2)]
        keys = [(who, day) for who in ("a", "b", "a'") for day in days]
        _write(session, table, [row_type(n=n, who=k[0], day=k[1]) for n, k in enumerate(keys)])
        _write(session, table, [row_type(n=9, who="b", day=days[1])], position=2)
        found = session.load_rows(table, [*keys, ("c", days[0])])
        assert {key: table.row(values).n for key, (values, _) in found.items()} == dict(
            zip(keys, [0, 1, 2, 9, 4, 5], strict=True)
        )
        with session.transaction() as work:
            work.delete_rows(table, [("a", days[0]), ("b", days[1]), ("c", days[1])])
        assert set(session.load_rows(table, keys)) == set(keys) - {("a", days[0]), ("b", days[1])}

    def test_large_batches(self, session: Session) -> None:
        row_type = make_dataclass("Row", [("a", int), ("b", str), ("n", int, 0)])
        table = _prepared(session, row_type, key_fields=("a", "b"))
        rows = [row_type(n % 70, f"key {n}", n) for n in range(5_000)]
        keys = [(row.a, row.b) for row in rows]
        _write(session, table, rows)
        _write(session, table, [row_type(row.a, row.b, row.n + 1) for row in rows], position=2)
        found = session.load_rows(table, keys)
        assert [found[key] for key in keys] == [((r.a, r.b, r.n + 1), 2) for r in rows]
        for count in (1, 2, 10, 11, 99, 100, 101, 449, 450, 451, 999):
            assert set(session.load_rows(table, keys[:count])) == set(keys[:count])
        with session.transaction() as work:
            work.delete_rows(table, keys[1:])
        assert list(session.load_rows(table, keys)) == keys[:1]

    def test_a_row_at_a_later_position_is_not_overwritten(self, session: Session) -> None:
        row_type = make_dataclass("Row", [("id", str), ("n", int, 0)])
        table = _prepared(session, row_type)
        _write(session, table, [row_type("a", 1)], position=5)
        with pytest.raises(Fenced):
            _write(session, table, [row_type("b", 2), row_type("a", 2)], position=4)
        assert session.load_rows(table, [("a",), ("b",)]) == {("a",): (("a", 1), 5)}
        _write(session, table, [row_type("a", 3)], position=6)
        assert session.load_rows(table, [("a",)]) == {("a",): (("a", 3), 6)}

    def test_whether_there_are_rows(self, session: Session) -> None:
        row_type = make_dataclass("Row", [("id", str), ("n", int, 0)])
        table = _prepared(session, row_type)
        assert not session.has_rows(table)
        _write(session, table, [row_type("a", 1)])
        assert session.has_rows(table)
        with session.transaction() as work:
            work.delete_rows(table, [("a",)])
        assert not session.has_rows(table)

    @pytest.mark.parametrize("name", NAMES)
    def test_any_table_name(self, session: Session, name: str) -> None:
        row_type = make_dataclass("Row", [("id", str), ("n", int, 0)])
        table = _prepared(session, row_type, name=name)
        assert not session.has_rows(table)
        _write(session, table, [row_type("a", 1), row_type("b", 2)])
        assert session.has_rows(table)
        _write(session, table, [row_type("a", 3)], position=2)
        with session.transaction() as work:
            work.delete_rows(table, [("b",)])
        assert session.load_rows(table, [("a",), ("b",)]) == {("a",): (("a", 3), 2)}

    def test_any_column_name(self, session: Session) -> None:
        names = ["Order", "select", "größe", "camelCase", "t", "k", "excluded", "user", "名前", "_"]
        row_type = make_dataclass(
            "Row", [("Group", str), ("table", str), *((name, int, 0) for name in names)]
        )
        table = _prepared(session, row_type, name="Index", key_fields=("Group", "table"))
        row = row_type("a", "b", *range(len(names)))
        _write(session, table, [row])
        _write(session, table, [row], position=2)
        assert table.row(session.load_rows(table, [("a", "b")])[("a", "b")][0]) == row
        with session.transaction() as work:
            work.delete_rows(table, [("a", "b")])
        assert session.load_rows(table, [("a", "b")]) == {}

    def test_any_row_comes_back(self, session: Session) -> None:
        table = _prepared(session, Everything)
        position = 0

        @hypothesis.settings(max_examples=50)
        @hypothesis.given(
            rows=st.lists(EVERYTHING, min_size=1, max_size=6, unique_by=lambda row: row.id)
        )
        def comes_back(rows: list[Everything]) -> None:
            nonlocal position
            position += 1
            _write(session, table, rows, position=position)
            assert _load(session, table, [(row.id,) for row in rows]) == {r.id: r for r in rows}

        comes_back()


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
INTEGERS = st.integers(-(2**63), 2**63 - 1)
EVERYTHING = st.builds(
    Everything,
    id=TEXTS,
    text=st.none() | TEXTS,
    number=st.none() | INTEGERS,
    real=st.none() | st.floats(allow_nan=False),
    flag=st.none() | st.booleans(),
    exact=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    day=st.none() | st.dates(),
    moment=st.none() | st.datetimes(timezones=st.just(UTC)),
    uuid=st.none() | st.uuids(),
    raw=st.none() | st.binary(),
    mapping=st.none() | st.dictionaries(TEXTS, st.none() | st.booleans() | INTEGERS | TEXTS),
)


def _prepared(
    session: Session, row_type: type, *, name: str = "things", key_fields: tuple[str, ...] = ()
) -> TableSpec:
    definition = table_definition(row_type, name=name, key_fields=key_fields)
    session.prepare(definition)
    assert isinstance(definition.kind, Fold)
    return definition.kind.table


def _write(session: Session, table: TableSpec, rows: Sequence[Any], *, position: int = 1) -> None:
    with session.transaction() as work:
        work.write_rows(table, RowChanges(table.checked(rows), [position] * len(rows)))


def as_stored(value: Any) -> Any:
    """Times come back in UTC; a time that happens twice equals none in another zone."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _load(session: Session, table: TableSpec, keys: Sequence[tuple[Any, ...]]) -> dict[Any, Any]:
    """The rows by their single key."""
    found = session.load_rows(table, [table.check_key(key) for key in keys])
    return {key[0]: table.row(values) for key, (values, _) in found.items()}
