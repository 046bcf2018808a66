"""Envelopes: our own, plain JSON by settings, and a function of the user's."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError, PayloadError
from holdfast.kafka.envelopes.envelope import of_function
from holdfast.kafka.envelopes.holdfast import Holdfast
from holdfast.kafka.envelopes.json import Json
from holdfast.kafka.record import Decoded, Record, undecodable
from holdfast.model.event import RawEvent
from tests.support.kafka_envelopes import SECRET, TIME_MS, event_of, record, refused, survives

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
ID = "4d47e190-0402-4048-bc2c-89dd54343cdc"


TYPE = ("holdfast-type", b"Placed")

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=255)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=5,
)
EVENTS = st.builds(
    RawEvent,
    position=st.integers(1, 2**63 - 1),
    stream=NAMES,
    version=st.integers(0, 2**63 - 1),
    id_text=st.uuids().map(str),
    type=NAMES.filter(lambda name: name != "*"),
    data=PLAIN.map(lambda value: msgspec.json.encode(value).decode()),
    metadata=st.dictionaries(NAMES, PLAIN, max_size=3).map(
        lambda value: msgspec.json.encode(value).decode()
    ),
    recorded_at=st.datetimes(timezones=st.just(UTC)),
)


@given(EVENTS)
def test_our_own_envelope_gives_the_same_event_again(event: RawEvent) -> None:
    key, value, headers = Holdfast().encode(event)
    own = Record("journal", 0, event.position - 1, None, key, value, tuple(headers))
    found = event_of(Holdfast(), own, contiguous=True)
    for name in RawEvent.__struct_fields__:
        assert getattr(found, name) == getattr(event, name)
    assert Holdfast().stream_of(own) == event.stream


def test_only_the_type_is_needed() -> None:
    found = event_of(Holdfast(), record(b'{"a":1}', TYPE))
    assert (found.stream, found.type, found.data) == ("order-1", "Placed", '{"a":1}')
    assert (found.version, found.metadata, found.recorded_at) == (42, "{}", NOON)
    assert Holdfast().has_versions
    assert Holdfast().has_ids


def test_the_last_of_several_headers_counts() -> None:
    headers = [TYPE, ("holdfast-version", b"1"), ("holdfast-version", b"2"), ("other", None)]
    assert event_of(Holdfast(), record(b"{}", *headers)).version == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (record(), "no header 'holdfast-type'"),
        (record(b"{}", ("holdfast-type", None)), "no header 'holdfast-type'"),
        (record(b"{}", TYPE, key=None), "no key"),
        (record(None, TYPE), "no value"),
        (record(b"\xff", TYPE), "its value is not UTF-8"),
        (record(b"{}", TYPE, key=b"\xff"), "its key is not UTF-8"),
        (record(b"{}", ("holdfast-type", b"\xff")), "its header 'holdfast-type' is not UTF-8"),
        (record(SECRET.encode(), TYPE), "its data is not JSON"),
        (record(b"", TYPE), "its data is not JSON"),
        (record(b"{}", TYPE, key=b""), "stream name can't be empty"),
        (record(b"{}", TYPE, key=b"s3cr3t\0"), "stream name contains a NUL"),
        (record(b"{}", ("holdfast-type", b"*")), "event type can't be '*'"),
        (record(b"{}", TYPE, ("holdfast-version", b"s3cr3t")), "its version is a str"),
        (record(b"{}", TYPE, ("holdfast-metadata", b"[]")), "its metadata is not"),
        (record(b"{}", TYPE, ("holdfast-metadata", b"s3cr3t")), "its metadata is not"),
        (record(b"{}", TYPE, ("holdfast-recorded-at", b"s3cr3t")), "'holdfast-recorded-at'"),
        (record(b"{}", TYPE, ("holdfast-recorded-at", b"2024-02-29T12:00")), "with a zone"),
        (record(b"{}", TYPE, ("holdfast-recorded-at", b"\xff")), "is not UTF-8"),
    ],
)
def test_a_broken_record_of_our_own_is_refused(given: Record, reason: str) -> None:
    assert reason in refused(Holdfast(), given)


def test_text_that_is_no_uuid_is_an_id_too() -> None:
    found = event_of(Holdfast(), record(b"{}", TYPE, ("holdfast-id", b"order-1/7")))
    assert found.id == UUID("582a594c-62f3-58e4-9274-42d397e7b20f")


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"a\0", b"x" * 513])
def test_a_key_that_is_no_stream_gives_no_lane(key: bytes | None) -> None:
    assert Holdfast().stream_of(record(key=key)) is None


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "holdfast-type",
                "holdfast-id",
                "holdfast-version",
                "holdfast-metadata",
                "holdfast-recorded-at",
                "x",
            ]
        ),
        st.none() | st.binary(max_size=20) | st.sampled_from([b"1", b"{}", b"2024-02-29T12:00Z"]),
    ),
    max_size=6,
).map(tuple)
BINARY: Any = st.none() | st.binary() | st.sampled_from([b"{}", b"[]", b'{"a":1}', b"null"])


@given(BINARY, BINARY, HEADERS)
def test_random_bytes_are_an_event_or_undecodable(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    survives(Holdfast(), Record("orders", 3, 41, TIME_MS, key, value, headers))


FULL = {
    "stream": "order-2",
    "type": "Placed",
    "version": 7,
    "id": ID,
    "data": {"lines": [1, 2.50]},
    "metadata": {"who": "me"},
    "recorded_at": "2024-02-29T14:00:00+02:00",
}


def value(**fields: Any) -> bytes:
    return json.dumps({**FULL, **fields}).encode()


def test_plain_json_by_default() -> None:
    found = event_of(Json(), record(value()), contiguous=True)
    assert (found.stream, found.type, found.version) == ("order-1", "Placed", 7)
    assert (found.id, found.recorded_at) == (UUID(ID), NOON)
    assert json.loads(found.data) == FULL["data"]
    assert json.loads(found.metadata) == FULL["metadata"]
    assert Json().stream_of(record(value())) == "order-1"


def test_data_goes_through_to_the_letter() -> None:
    given = b'{"type": "Placed", "data": {"a" :1.50, "a\\u0000": "\xc3\xa9", "big": 1e400}}'
    found = event_of(Json(), record(given))
    assert found.data == '{"a" :1.50, "a\\u0000": "é", "big": 1e400}'


NULLS = b'{"type":"T","data":null,"version":null,"id":null,"metadata":null,"recorded_at":null}'


@pytest.mark.parametrize("value", [NULLS, b'{"type":"T","data":null}'])
def test_what_may_be_missing(value: bytes) -> None:
    found = event_of(Json(), record(value))
    assert (found.data, found.version, found.metadata) == ("null", 42, "{}")
    assert found.recorded_at == NOON


def test_every_kind_of_field_path() -> None:
    envelope = Json(
        stream="payload:meta.order.id",
        type="header:type",
        version="payload:meta.version",
        id="header:id",
        data="payload",
        metadata="header:meta",
        recorded_at="header:at",
    )
    given = record(
        b'{"meta":{"order":{"id":17},"version":"3"},"x":[]}',
        ("type", b"Placed"),
        ("id", b"a-1"),
        ("meta", b'{"who":"me"}'),
        ("at", b"2024-02-29T12:00:00Z"),
        key=None,
    )
    found = event_of(envelope, given, contiguous=True)
    assert (found.stream, found.type, found.version) == ("17", "Placed", 3)
    assert found.data == '{"meta":{"order":{"id":17},"version":"3"},"x":[]}'
    assert (found.metadata, found.recorded_at) == ('{"who":"me"}', NOON)
    assert envelope.stream_of(given) == "17"


def test_one_field_may_serve_twice() -> None:
    envelope = Json(stream="payload:data.order", type="payload:data.kind", id="payload:data.order")
    found = event_of(envelope, record(b'{"data":{"order":"o-1","kind":"Placed"}}'))
    assert (found.stream, found.type) == ("o-1", "Placed")


def test_a_topic_may_be_a_type_and_a_value_need_not_be_an_object() -> None:
    envelope = Json(
        type="topic", data="payload", version=None, id=None, metadata=None, recorded_at=None
    )
    assert not envelope.has_versions
    assert not envelope.has_ids
    for text in ("[1]", "7", '"x"', "null"):
        found = event_of(envelope, record(text.encode()))
        assert (found.type, found.data, found.metadata) == ("orders", text, "{}")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (record(b""), "its payload is not a JSON object"),
        (record(SECRET.encode()), "its payload is not a JSON object"),
        (record(b"[]"), "its payload is not a JSON object: Expected `object`, got `array`"),
        (record(b'{"a":' * 100_000), "its payload is not a JSON object"),
        (record(b"{}"), "it has no data: nothing is at 'payload:data'"),
        (record(b'{"data":1}'), "it has no type: nothing is at 'payload:type'"),
        (record(value(type=None)), "it has no type: nothing is at 'payload:type'"),
        (record(value(type=[SECRET])), "type, at 'payload:type', is neither text nor"),
        (record(value(type="")), "event type can't be empty"),
        (record(value(), key=None), "it has no stream: nothing is at 'key'"),
        (record(value(), key=b"\xff"), "its key is not UTF-8"),
        (record(value(), key=b""), "stream name can't be empty"),
        (record(value(version=-1)), "its version is a int"),
        (record(value(version=1.5)), "version, at 'payload:version', is neither"),
        (record(value(version=True)), "version, at 'payload:version', is neither"),
        (record(value(version=SECRET)), "its version is a str"),
        (record(value(id={})), "id, at 'payload:id', is neither"),
        (record(value(metadata=SECRET)), "its metadata is not a JSON object"),
        (record(value(metadata=[])), "its metadata is not a JSON object"),
        (record(value(recorded_at=SECRET)), "recorded_at, at 'payload:recorded_at', is not a time"),
        (record(value(recorded_at=1709208000)), "recorded_at=None for the record's own time"),
        (record(value(recorded_at="2024-02-29T12:00:00")), "with a zone"),
        (record(b'{"type":"\xff","data":1}'), "type, at 'payload:type', is neither"),
        (record(b'{"type":"T","data":"\xff"}'), "its data is not JSON"),
        (record(b'{"type":"T","data":1,"metadata":{"a":"\xff"}}'), "its metadata is not UTF-8"),
    ],
)
def test_a_broken_record_of_plain_json_is_refused(given: Record, reason: str) -> None:
    assert reason in refused(Json(), given)


def test_contiguous_versions_are_needed_in_each_record() -> None:
    assert "it has no version" in refused(Json(), record(value(version=None)), contiguous=True)


def test_a_header_that_is_no_text_is_refused() -> None:
    envelope = Json(type="header:type")
    assert "its header 'type' is not UTF-8" in refused(envelope, record(value(), ("type", b"\xff")))
    assert "nothing is at 'header:type'" in refused(envelope, record(value(), ("type", None)))


@pytest.mark.parametrize("given", [b"", b"{}", b'{"order":""}', b'{"order":{}}', None])
def test_where_the_stream_can_not_be_told_the_key_is_the_lane(given: bytes | None) -> None:
    envelope = Json(stream="payload:order")
    assert envelope.stream_of(record(given)) == "order-1"
    assert envelope.stream_of(record(given, key=None)) is None
    assert envelope.stream_of(record(b'{"order":"o-1"}')) == "o-1"


@pytest.mark.parametrize(
    "text",
    [
        "", "value", "header", "header:", "payload:", "payload:a..b", "payload:.a", "key:a",
        "topic:a", "Key", 'payload:a"b', "payload:a\\b", "envelope:a", "attribute:a", 7, True,
    ],
)  # fmt: skip
def test_a_setting_that_is_no_field_path_says_what_is_possible(text: Any) -> None:
    for setting in ("stream", "type", "version", "id", "data", "metadata", "recorded_at"):
        with pytest.raises(ConfigError) as caught:
            Json(**{setting: text})
        message = str(caught.value)
        assert message.startswith(
            f"Json({setting}={text!r}): this is not a field path; possible are "
        )
        assert message.endswith("'key', 'topic', 'header:NAME', 'payload:dotted.path'")


@pytest.mark.parametrize("setting", ["stream", "type", "data"])
def test_some_things_are_always_somewhere(setting: str) -> None:
    with pytest.raises(ConfigError, match="this is not a field path"):
        Json(**{setting: None})  # type: ignore[arg-type]


NAMED = st.sampled_from(["type", "version", "id", "data", "metadata", "recorded_at", "a"])
JSON_VALUES = st.dictionaries(NAMED, PLAIN, max_size=7).map(msgspec.json.encode)


@given(BINARY, BINARY | JSON_VALUES)
def test_random_bytes_as_plain_json(key: bytes | None, value: bytes | None) -> None:
    given = Record("orders", 3, 41, TIME_MS, key, value)
    survives(Json(), given)
    survives(Json(data="payload", type="topic"), given)
    survives(Json(stream="payload:a", metadata="payload", id="payload:a.b.c"), given)


def test_a_function_of_ones_own() -> None:
    def decode(record: Record) -> Decoded | None:
        assert record.key is not None
        if record.key == b"other":
            return None
        return Decoded(stream=record.key.decode(), type="Placed", data={"at": record.offset})

    envelope = of_function(decode)
    found = event_of(envelope, record())
    assert (found.stream, found.data) == ("order-1", '{"at":41}')
    assert envelope.decode(record(key=b"other")) is None
    assert envelope.has_versions
    assert envelope.has_ids
    assert envelope.stream_of(record()) == "order-1"
    assert envelope.stream_of(record(key=b"\xff")) is None


def test_what_a_function_raises_makes_a_record_undecodable() -> None:
    cause = KeyError(SECRET)

    def decode(record: Record) -> Decoded:
        raise cause

    with pytest.raises(PayloadError, match="the decode function raised KeyError") as caught:
        of_function(decode).decode(record())
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is cause

    def refuse(record: Record) -> Decoded:
        raise undecodable(record, "it is not for us")

    assert refused(of_function(refuse), record()).endswith("it is not for us")


@pytest.mark.parametrize("given", [{}, "x", 7, ("stream", "type")])
def test_a_function_gives_a_decoded(given: Any) -> None:
    text = refused(of_function(lambda record: given), record())
    assert f"the decode function gave a {type(given).__name__}" in text


def test_a_decode_function_is_a_plain_function() -> None:
    async def decode(record: Record) -> Decoded | None:
        return None

    with pytest.raises(ConfigError, match="is async"):
        of_function(decode)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="can't be called"):
        of_function("decode")  # type: ignore[arg-type]
