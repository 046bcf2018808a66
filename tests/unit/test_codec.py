"""Payloads to JSON text and back: classes, dicts, names, versions, and errors that say where."""

import enum
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import AppendError, ConfigError, Event, EventTypes, PayloadError
from holdfast.model.event import RawEvent
from holdfast.model.event_types import VERSION_KEY, encode_metadata


class Colour(enum.StrEnum):
    RED = "red"


@dataclass
class Line:
    product: UUID
    price: Decimal


@dataclass(frozen=True)
class Ordered:
    lines: list[Line]
    at: datetime
    day: date
    colour: Colour = Colour.RED
    raw: bytes = b""
    tags: set[str] = field(default_factory=set)
    note: str | None = None
    number: int = 0


class Paid(msgspec.Struct, frozen=True):
    amount: Decimal
    by: dict[str, int] = {}


class Shipped(pydantic.BaseModel):
    parcels: list[dict[str, int]]
    at: datetime


NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
PAYLOADS: list[Any] = [
    Ordered([], NOON, date(2024, 2, 29)),
    Ordered(
        [Line(UUID(int=7), Decimal("1.50"))],
        NOON,
        date.max,
        raw=b"\0\xff",
        tags={"a", "b"},
        note="nul \0, 💡",
        number=2**100,
    ),
    Paid(Decimal("0.1"), {"x": 1}),
    Shipped(parcels=[{"a": 1}], at=NOON),
]


def stored(type_name: str, data: str, *, metadata: str = "{}") -> RawEvent:
    return RawEvent(9, "order-1", 3, str(UUID(int=5)), type_name, data, metadata, NOON)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_an_instance_comes_back(payload: Any) -> None:
    types = EventTypes()
    encoded = types.encode(payload)
    assert (encoded.type, encoded.schema_version) == (type(payload).__name__, 1)
    event = types.decode(stored(encoded.type, encoded.data))
    assert event.data == payload
    assert type(event.data) is type(payload)


def test_an_event_carries_everything() -> None:
    event = EventTypes().decode(stored("Odd", '{"a":[1]}', metadata='{"who":"me"}'))
    assert (event.position, event.stream, event.version, event.id, event.type) == (
        9,
        "order-1",
        3,
        UUID(int=5),
        "Odd",
    )
    assert (event.data, event.metadata, event.recorded_at) == ({"a": [1]}, {"who": "me"}, NOON)


def test_a_dict_is_read_into_the_class_that_has_its_name() -> None:
    types = EventTypes()
    types.register(Paid, name="payment.taken")
    encoded = types.encode({"amount": "2.5"}, type_name="payment.taken")
    assert types.decode(stored(encoded.type, encoded.data)).data == Paid(Decimal("2.5"))
    assert types.name_of(Paid) == "payment.taken"
    assert types.encode(Paid(Decimal(1))).type == "payment.taken"


def test_mappings_of_every_kind_are_dicts() -> None:
    payload = MappingProxyType({"inner": MappingProxyType({"a": (1, 2)})})
    encoded = EventTypes().encode(payload, type_name="Odd")
    assert encoded.data == '{"inner":{"a":[1,2]}}'


def test_enums_and_other_subclasses_are_their_values() -> None:
    class Number(int):
        pass

    class Level(enum.IntEnum):
        HIGH = 3

    payload = {"colour": Colour.RED, "number": Number(2), "level": Level.HIGH}
    assert EventTypes().encode(payload, type_name="Odd").data == (
        '{"colour":"red","number":2,"level":3}'
    )


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a": {1, 2}}, "$.a"),
        ({"a": [1, {"b": object()}]}, "$.a[1].b"),
        ({"a": NOON}, "$.a"),
        ({"a": Decimal(1)}, "$.a"),
        ({"a": UUID(int=1)}, "$.a"),
        ({"a": b"x"}, "$.a"),
        ({"a": float("nan")}, "$.a"),
        ({"a": [float("-inf")]}, "$.a[0]"),
        ({"a": {1: 2}}, "$.a"),
        ({"a": "lone \ud800"}, "$.a"),
        ({"lone \udfff": 1}, "$"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(payload: dict[str, Any], path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        EventTypes().encode(payload, type_name="Odd")
    assert f"`{path}`" in str(caught.value)
    assert "Odd" in str(caught.value)
    with pytest.raises(PayloadError):
        encode_metadata(payload, schema_version=1)


@dataclass
class Measured:
    value: float | None = None
    values: list[float | None] = field(default_factory=list)
    extra: Any = None


class Read(msgspec.Struct):
    measured: Measured | None = None
    by_name: dict[str, Measured] = {}
    extra: Any = None


class Weighed(pydantic.BaseModel):
    value: float | None = None
    extra: Any = None
    inner: list["Weighed"] = []


class Open(pydantic.BaseModel, extra="allow"):
    pass


class InWords(pydantic.BaseModel, ser_json_inf_nan="strings"):
    value: float
    note: str | None = None


class AsConstants(pydantic.BaseModel, ser_json_inf_nan="constants"):
    value: float


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (Measured(NAN), "nan at `$.value`"),
        (Measured(-INF), "-inf at `$.value`"),
        (Measured(1.0, [1.0, None, INF]), "inf at `$.values[2]`"),
        (Measured(extra=NAN), "nan at `$.extra`"),
        (Measured(extra={"a": [None, (1, INF)]}), "inf at `$.extra.a[1][1]`"),
        (Measured(extra=Measured(NAN)), "nan at `$.extra.value`"),
        (Read(Measured(INF)), "inf at `$.measured.value`"),
        (Read(None, {"a": Measured(NAN)}), "nan at `$.by_name.a.value`"),
        (Read(extra=[NAN]), "nan at `$.extra[0]`"),
        (Weighed(value=NAN), "nan at `$.value`"),
        (Open(value=NAN), "nan at `$.value`"),  # type: ignore[call-arg]
        (Weighed(inner=[Weighed(), Weighed(extra=[INF])]), "inf at `$.inner[1].extra[0]`"),
    ],
)
def test_nan_and_infinity_in_an_instance_are_refused_with_the_path(payload: Any, what: str) -> None:
    with pytest.raises(PayloadError) as caught:
        EventTypes().encode(payload)
    wanted = f"payload of event type {type(payload).__name__!r}: {what} has no place in JSON"
    assert str(caught.value) == wanted


def test_a_model_may_write_nan_in_words_but_not_as_a_constant() -> None:
    assert EventTypes().encode(InWords(value=NAN)).data == '{"value":"NaN","note":null}'
    with pytest.raises(PayloadError, match=r"'AsConstants'.* no place in JSON"):
        EventTypes().encode(AsConstants(value=INF))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (b"x", "$.extra"),
        ([bytearray(b"x")], "$.extra[0]"),
        ({1, 2}, "$.extra"),
        ({"a": frozenset()}, "$.extra.a"),
        ({1: 2}, "$.extra"),
        ([{"a": {2.5: 1}}], "$.extra[0].a"),
    ],
)
@pytest.mark.parametrize("cls", [Measured, Read, Weighed, Open])
def test_what_is_not_json_is_refused_where_anything_may_be(
    cls: type, value: Any, path: str
) -> None:
    with pytest.raises(PayloadError, match=cls.__name__) as caught:
        EventTypes().encode(cls(extra=value))
    assert f"`{path}`" in str(caught.value)


@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_nesting_comes_back_or_is_refused(depth: int) -> None:
    payload: dict[str, Any] = {}
    for _ in range(depth):
        payload = {"a": payload}
    types = EventTypes()
    try:
        encoded = types.encode(payload, type_name="Deep")
    except PayloadError as error:
        assert "deep" in str(error).lower()  # noqa: PT017
        assert depth > 200
    else:
        assert types.decode(stored("Deep", encoded.data)).data == payload


@pytest.mark.parametrize(
    "payload",
    [
        Ordered([], NOON, date.min, number="x"),  # type: ignore[arg-type]
        Ordered([], None, date.min),  # type: ignore[arg-type]
        Ordered([Line(UUID(int=1), object())], NOON, date.min),  # type: ignore[arg-type]
        Ordered([], NOON, date.min, note="lone \ud800"),
        Paid(float("nan")),  # type: ignore[arg-type]
        Shipped.model_construct(parcels="none", at=NOON),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_instance_that_could_not_be_read_back_is_refused(payload: Any) -> None:
    with pytest.raises(PayloadError, match=type(payload).__name__):
        EventTypes().encode(payload)


def test_a_dict_without_a_type_name_is_refused() -> None:
    with pytest.raises(PayloadError, match=r"NewEvent\(\{…\}, type="):
        EventTypes().encode({"a": 1})


def test_another_type_name_than_the_class_has_is_refused() -> None:
    with pytest.raises(PayloadError, match="'Paid', the append says 'Other'"):
        EventTypes().encode(Paid(Decimal(1)), type_name="Other")
    assert EventTypes().encode(Paid(Decimal(1)), type_name="Paid").type == "Paid"


@pytest.mark.parametrize(
    ("cls", "data", "path"),
    [
        (Ordered, '{"lines":[{"product":7,"price":"1"}]}', "`$.lines[0].product`"),
        (Paid, '{"amount":"1","by":{"x":"y"}}', "`$.by[...]`"),
        (Shipped, '{"parcels":[{"a":"x"}],"at":"2024-02-29T12:00:00Z"}', "`$.parcels.0.a`"),
        (Ordered, '{"lines":', "truncated"),
    ],
)
def test_an_undecodable_event_is_named_with_the_path(cls: type, data: str, path: str) -> None:
    types = EventTypes()
    types.register(cls)
    with pytest.raises(PayloadError) as caught:
        types.decode(stored(cls.__name__, data))
    message = str(caught.value)
    assert path in message
    for part in (str(UUID(int=5)), repr(cls.__name__), "'order-1' version 3", "position 9"):
        assert part in message
    assert caught.value.__cause__ is not None


def test_registering_again_changes_nothing() -> None:
    types = EventTypes()
    assert types.register(Paid) is Paid
    assert types.register(Paid) is Paid
    assert types.name_of(Paid) == "Paid"


def test_clashes_are_refused() -> None:
    types = EventTypes()
    types.register(Paid)
    other = msgspec.defstruct("Paid", [])
    with pytest.raises(ConfigError, match=r"'Paid' is already registered for .*Paid"):
        types.register(other)
    with pytest.raises(ConfigError, match="'Paid' is already registered"):
        types.encode(other())
    for settings in ({"name": "payment"}, {"version": 2}):
        with pytest.raises(ConfigError, match="already registered as event type 'Paid', version 1"):
            types.register(Paid, **settings)
    types.register(other, name="payment")
    assert types.name_of(other) == "payment"


@pytest.mark.parametrize("cls", [int, dict, object, list[int], enum.Enum])
def test_what_can_not_be_an_event_is_refused(cls: Any) -> None:
    types = EventTypes()
    with pytest.raises(ConfigError, match="can't be an event"):
        types.register(cls)
    types.register(Paid, name=getattr(cls, "__name__", "list"))  # The name is still free.


def test_fields_that_can_not_be_read_are_refused_at_once() -> None:
    @dataclass
    class Unreadable:
        either: Line | Ordered

    with pytest.raises(ConfigError, match="Unreadable"):
        EventTypes().register(Unreadable)


@pytest.mark.parametrize("name", ["", "*", "x" * 256, "nul\0", "\ud800", 7])
def test_impossible_names_are_refused(name: Any) -> None:
    types = EventTypes()
    with pytest.raises(ConfigError, match="event type"):
        types.register(Paid, name=name)
    with pytest.raises(ConfigError, match="event type"):
        types.upcaster(name, from_version=1)(dict)
    with pytest.raises(AppendError, match="event type"):
        types.encode({}, type_name=name)
    assert types.register(Paid) is Paid


def test_an_event_type_is_an_event_type() -> None:
    with pytest.raises(ConfigError, match=r"^an event type can't be empty$"):
        EventTypes().register(Paid, name="")
    with pytest.raises(ConfigError, match=r"^an event type can't be '\*'.* @on\("):
        EventTypes().register(Paid, name="*")


@pytest.mark.parametrize("version", [0, -1])
def test_versions_begin_at_one(version: int) -> None:
    with pytest.raises(ConfigError, match="versions start at 1"):
        EventTypes().register(Paid, version=version)


def test_metadata_that_is_handed_on_does_not_change_the_version() -> None:
    handed_on = {"trace": "x", VERSION_KEY: 7}
    assert encode_metadata(handed_on, schema_version=1) == '{"trace":"x"}'
    assert encode_metadata(handed_on, schema_version=2) == '{"trace":"x","schema_version":2}'


def test_metadata_is_a_mapping() -> None:
    event = EventTypes().decode(stored("Odd", "{}"))
    assert isinstance(event.metadata, Mapping)
    assert event.metadata == {}


def test_an_event_is_the_same_however_it_was_made() -> None:
    """One that is read makes its id when it is asked for it, and nobody notices."""
    types = EventTypes()
    types.register(Paid)
    read = types.decode(stored("Paid", '{"amount":"1.50"}', metadata='{"by":"me"}'))
    made = Event(
        position=9,
        stream="order-1",
        version=3,
        id=UUID(int=5),
        type="Paid",
        data=Paid(Decimal("1.50")),
        metadata={"by": "me"},
        recorded_at=NOON,
    )
    assert read.id == UUID(int=5)
    assert read == made
    assert made == read
    assert repr(read) == repr(made)
    assert pickle.loads(pickle.dumps(read)) == made
    assert read != msgspec.structs.replace(made, version=4)
