"""A record's way to an event: what is checked, what is made up, and what is refused."""

import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import EventTypes, PayloadError
from holdfast.kafka.record import (
    EPOCH,
    Decoded,
    Record,
    parse_time,
    raw_event,
    record_from_json,
    record_json,
    stream_or_none,
    undecodable,
    unreadable_event,
)
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import UNDECODABLE, Undecodable

SECRET = "s3cr3t"
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
NOON_MS = 1_709_208_000_000


def record(**fields: Any) -> Record:
    usual: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "offset": 41,
        "timestamp_ms": NOON_MS,
        "key": b"order-1",
        "value": b"{}",
    }
    return Record(**{**usual, **fields})


def event(*, contiguous: bool = False, **fields: Any) -> RawEvent:
    usual: dict[str, Any] = {"stream": "order-1", "type": "Placed", "data": "{}"}
    return raw_event(record(), Decoded(**{**usual, **fields}), contiguous=contiguous)


def refused(*, contiguous: bool = False, **fields: Any) -> str:
    with pytest.raises(Undecodable) as caught:
        event(contiguous=contiguous, **fields)
    text = str(caught.value)
    assert text.startswith("record of topic 'orders', partition 3, offset 41 can't be decoded: "), (
        text
    )
    assert SECRET not in text
    return text


def test_the_last_header_of_a_name_counts() -> None:
    headers = (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", None))
    assert record(headers=headers).header("a") == b"3"
    assert record(headers=headers).header("c") is None
    assert record(headers=headers).header("d") is None
    assert record(headers=(("a", b"1"), ("a", None))).header("a") is None


RECORDS = st.builds(
    Record,
    topic=st.text(st.characters(codec="utf-8")),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.none() | st.binary())).map(
        tuple
    ),
)


@given(RECORDS)
def test_a_record_survives_as_json(given: Record) -> None:
    text = record_json(given)
    assert record_from_json(text) == given
    assert "\0" not in text


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"topic":1}', "nonsense", "\udc80"])
def test_other_text_is_no_record(text: str) -> None:
    with pytest.raises(PayloadError, match="no record's JSON"):
        record_from_json(text)


def test_all_that_is_given_is_taken() -> None:
    id = uuid4()
    found = event(
        data='{"a": [1, "x\\u0000"]}',
        version=7,
        id=id,
        metadata={"who": "me"},
        recorded_at=NOON + timedelta(days=1),
        contiguous=True,
    )
    assert (found.position, found.stream, found.version) == (42, "order-1", 7)
    assert (found.id, found.type, found.data) == (id, "Placed", '{"a": [1, "x\\u0000"]}')
    assert (found.metadata, found.recorded_at) == ('{"who":"me"}', NOON + timedelta(days=1))


def test_what_is_left_out_comes_from_the_record() -> None:
    found = event()
    assert (found.position, found.version, found.recorded_at) == (42, 42, NOON)
    assert found.metadata == "{}"
    assert found.id == event().id
    others = [
        raw_event(other, Decoded(stream="s", type="T", data="{}"), contiguous=False).id
        for other in (record(offset=42), record(partition=4), record(topic="other"))
    ]
    assert len({found.id, *others}) == 4


@pytest.mark.parametrize("timestamp_ms", [None, 2**62, -(2**62)])
def test_a_record_without_a_usable_time_is_of_the_epoch(timestamp_ms: int | None) -> None:
    decoded = Decoded(stream="s", type="T", data="{}")
    found = raw_event(record(timestamp_ms=timestamp_ms), decoded, contiguous=False)
    assert found.recorded_at == EPOCH


@pytest.mark.parametrize(
    ("given", "version"),
    [
        (0, 0),
        (1, 1),
        (2**63 - 1, 2**63 - 1),
        ("7", 7),
        ("007", 7),
        ("0" * 40 + "12", 12),
        ("0" * 40, 0),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_version_is_a_number_or_its_digits(given: int | str, version: int) -> None:
    assert event(version=given, contiguous=True).version == version


@pytest.mark.parametrize(
    "version", [True, -1, 2**63, 1.0, "", "-1", "1.0", " 1", SECRET, "9" * 19, "9" * 10_000, [1]]
)
def test_anything_else_is_no_version(version: Any) -> None:
    assert "its version is a" in refused(version=version)


def test_contiguous_versions_are_needed() -> None:
    assert "it has no version" in refused(contiguous=True)


@pytest.mark.parametrize("form", ["{}", "{:x}"])
def test_an_id_that_is_a_uuid_is_kept(form: str) -> None:
    id = UUID("4d47e190-0402-4048-bc2c-89dd54343cdc")
    text = str(id) if form == "{}" else id.hex
    assert event(id=text).id == event(id=text.upper()).id == event(id=id).id == id


def test_any_other_text_gives_always_the_same_id() -> None:
    """These values are in databases: they never change."""
    assert event(id="order-1/7").id == UUID("582a594c-62f3-58e4-9274-42d397e7b20f")
    assert event().id == UUID("4d951d04-bd8f-5602-b3ef-88644d03f3c2")
    assert event(id="orders/3/41").id != event().id
    assert event(id="").id == event(id="").id


@pytest.mark.parametrize("id", [7, b"x", ["x"], "\udc80"])
def test_an_id_is_text(id: Any) -> None:
    assert "its id is" in refused(id=id)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ("", "can't be empty"),
        (SECRET + "\0", "contains a NUL"),
        (SECRET + "\udc80", "not valid Unicode"),
        ("x" * 513, "the limit is 512"),
        (7, "is a str, not int"),
        (None, "is a str, not NoneType"),
        (["x"], "is a str, not list"),
    ],
)
def test_a_bad_stream_is_refused_without_showing_it(stream: Any, reason: str) -> None:
    text = refused(stream=stream)
    assert "stream name" in text
    assert reason in text
    assert stream_or_none(stream) is None


@pytest.mark.parametrize(
    ("type_name", "reason"),
    [
        ("", "can't be empty"),
        ("*", "can't be '*'"),
        (SECRET + "\0", "contains a NUL"),
        ("x" * 256, "the limit is 255"),
        (None, "is a str, not NoneType"),
        (["x"], "is a str, not list"),
    ],
)
def test_a_bad_type_is_refused_without_showing_it(type_name: Any, reason: str) -> None:
    text = refused(type=type_name)
    assert "event type" in text
    assert reason in text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (b'{"a": "\xc3\xa9"}', '{"a": "é"}'),
        (msgspec.Raw(b"[1]"), "[1]"),
        ('"text"', '"text"'),
        ({"a": [1, None, True, 1.5, "x"]}, '{"a":[1,null,true,1.5,"x"]}'),
        (MappingProxyType({"a": (1, 2)}), '{"a":[1,2]}'),
        ([], "[]"),
        (None, "null"),
        (7, "7"),
        (True, "true"),
        ({"a": "\0"}, '{"a":"\\u0000"}'),
    ],
)
def test_data_is_json_text_or_plain_values(data: Any, text: str) -> None:
    found = event(data=data)
    assert found.data == text
    EventTypes().decode(found)


@pytest.mark.parametrize(
    "data",
    [
        "",
        SECRET,
        '{"a":',
        "{} {}",
        "NaN",
        '"\0"',
        "\0",
        '"\udc80"',
        b'"\xff"',
        b"\xef\xbb\xbf{}",
        "[" * 100_000,
        msgspec.Raw(b""),
    ],
)
def test_data_that_is_not_json_is_refused(data: Any) -> None:
    assert "its data is not JSON" in refused(data=data)


def nested() -> list[Any]:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "data",
    [
        {"a": float("nan")},
        {"a": object()},
        {1: 2},
        {"a": "\udc80"},
        {"a": uuid4()},
        {"a": SECRET.encode()},
        pytest.param(nested(), id="nested"),
    ],
)
def test_values_that_json_can_not_hold_are_refused(data: Any) -> None:
    refused(data=data)
    refused(metadata={"a": data})


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ("{}", "{}"),
        ({}, "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ({"a": {"b": None}}, '{"a":{"b":null}}'),
        (MappingProxyType({}), "{}"),
    ],
)
def test_metadata_is_an_object(metadata: Mapping[str, Any] | str, text: str) -> None:
    assert event(metadata=metadata).metadata == text


@pytest.mark.parametrize(
    "metadata", ["", "[]", "null", SECRET, '{"a":', "\udc80", None, [], 7, b"{}", "[" * 100_000]
)
def test_metadata_that_is_no_object_is_refused(metadata: Any) -> None:
    assert "its metadata is" in refused(metadata=metadata)


def test_times_are_in_utc() -> None:
    local = datetime(2024, 2, 29, 14, tzinfo=timezone(timedelta(hours=2)))
    found = event(recorded_at=local).recorded_at
    assert found == NOON
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2024, 2, 29),
        "2024-02-29T12:00:00Z",
        NOON.date(),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_a_time_without_a_zone_is_refused(moment: Any) -> None:
    assert "recorded_at" in refused(recorded_at=moment)


def test_times_are_read_from_text() -> None:
    assert parse_time("2024-02-29T12:00:00Z") == NOON
    assert parse_time("2024-02-29T14:00:00.000+02:00") == NOON
    for text in ("", "2024-02-29", "2024-02-29T12:00:00", "noon", "0001-01-01T00:00:00+14:00"):
        assert parse_time(text) is None


def test_an_undecodable_record_has_an_event_that_stands_for_it() -> None:
    error = undecodable(record(), "it is \udc80 'strange'\0")
    found = unreadable_event(record(), "order-1", error)
    assert (found.position, found.stream, found.version) == (42, "order-1", 0)
    assert (found.type, found.metadata, found.recorded_at) == (UNDECODABLE, "{}", NOON)
    assert found.id == event().id
    assert "\0" not in found.data
    message = EventTypes().decode(found).data["error"]
    assert message.startswith("record of topic 'orders', partition 3, offset 41 can't be decoded")
    far = unreadable_event(record(timestamp_ms=2**62), "order-1", error)
    assert far.recorded_at == EPOCH


def test_the_error_can_be_pickled() -> None:
    error = undecodable(record(), "why")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is Undecodable
    assert str(again) == str(error)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=5,
)


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING, st.booleans())
def test_whatever_a_decode_function_gives_is_an_event_or_undecodable(
    stream: Any, data: Any, version: Any, id: Any, metadata: Any, contiguous: bool
) -> None:
    decoded = Decoded(stream=stream, type="T", data=data, version=version, id=id, metadata=metadata)
    try:
        found = raw_event(record(), decoded, contiguous=contiguous)
    except Undecodable:
        return
    msgspec.convert(found, RawEvent, strict=True)
    assert "\0" not in found.data + found.metadata + found.stream
    assert isinstance(msgspec.json.decode(found.metadata), dict)
