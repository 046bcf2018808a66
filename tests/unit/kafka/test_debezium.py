"""Messages in every form that Debezium's outbox event router and its converters give them."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError, EventTypes
from holdfast.kafka.envelopes.debezium import Debezium
from holdfast.kafka.record import Record
from tests.support.kafka_envelopes import (
    SECRET,
    TIME_MS,
    Header,
    event_of,
    record,
    refused,
    survives,
)

ID = "4d47e190-0402-4048-bc2c-89dd54343cdc"
ORDER = {"id": 1, "lines": [{"item": "Tea", "price": 39.98}], "note": 'with "quotes" and é'}
TEXT = json.dumps(ORDER)
HEADERS: tuple[Header, ...] = (("id", ID.encode()), ("eventType", b"OrderCreated"))


def with_schema(payload: Any, kind: str) -> bytes:
    return json.dumps({"schema": {"type": kind, "optional": False}, "payload": payload}).encode()


STRUCT = {
    "schema": {
        "type": "struct",
        "fields": [{"type": "int32", "optional": True, "field": "id"}],
        "optional": False,
        "name": "payload",
    },
    "payload": ORDER,
}

VALUES = {
    "expanded, schemas off": TEXT.encode(),
    "expanded, schemas on": json.dumps(STRUCT).encode(),
    "text, string converter": TEXT.encode(),
    "text, schemas off": json.dumps(TEXT).encode(),
    "text, schemas on": with_schema(TEXT, "string"),
    "without a schema, schemas on": json.dumps({"schema": None, "payload": ORDER}).encode(),
    "text with space": b" \n" + TEXT.encode(),
    "quoted text with space": json.dumps("\n " + TEXT).encode(),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_the_payload_in_every_form(value: bytes) -> None:
    found = event_of(Debezium(), record(value, *HEADERS, key=b"1"))
    assert (found.stream, found.type, found.id) == ("1", "OrderCreated", UUID(ID))
    assert json.loads(found.data) == ORDER
    assert (found.metadata, found.version) == ("{}", 42)
    assert found.recorded_at == datetime(2024, 2, 29, 12, tzinfo=UTC)


def test_a_payload_in_plain_text_goes_through_to_the_letter() -> None:
    text = '{"a" : 1.50, "b":"\\u0000"}'
    for value in (text.encode(), json.dumps(text).encode(), with_schema(text, "string")):
        assert event_of(Debezium(), record(value, *HEADERS)).data == text


KEYS = {
    "plain": (b"1", "1"),
    "quoted": (b'"1"', "1"),
    "with a schema": (with_schema("1", "string"), "1"),
    "number with a schema": (with_schema(17, "int64"), "17"),
    "a uuid": (with_schema(ID, "string"), ID),
    "quoted with an escape": (b'"a\\u00e9"', "aé"),
    "only begins with a quote": (b'"1', '"1'),
    "an object that is no schema": (b'{"id":1}', '{"id":1}'),
    "a struct": (with_schema({"id": 1}, "struct"), with_schema({"id": 1}, "struct").decode()),
}


@pytest.mark.parametrize(("key", "stream"), KEYS.values(), ids=KEYS.keys())
def test_the_key_in_every_form(key: bytes, stream: str) -> None:
    given = record(b"{}", *HEADERS, key=key)
    assert event_of(Debezium(), given).stream == stream
    assert Debezium().stream_of(given) == stream


def quoted(text: str) -> bytes:
    return json.dumps(text).encode()


@pytest.mark.parametrize("form", [str.encode, quoted, lambda text: with_schema(text, "string")])
def test_headers_in_every_form(form: Any) -> None:
    given = record(
        b"{}",
        ("id", form(ID)),
        ("eventType", form("OrderCreated")),
        ("version", form("7")),
        ("tenant", form("acme")),
    )
    found = event_of(Debezium(version="header:version"), given, contiguous=True)
    assert (found.id, found.type, found.version) == (UUID(ID), "OrderCreated", 7)
    assert found.metadata == '{"tenant":"acme"}'


def test_a_number_in_a_header() -> None:
    for number in (b"7", with_schema(7, "int32")):
        given = record(b"{}", *HEADERS, ("v", number))
        assert event_of(Debezium(version="header:v"), given, contiguous=True).version == 7


ENVELOPES = {
    "payload as text": {"payload": TEXT, "eventType": "OrderCreated", "version": 7, "who": "me"},
    "payload expanded": {"payload": ORDER, "eventType": "OrderCreated", "version": 7, "who": "me"},
}


@pytest.mark.parametrize("fields", ENVELOPES.values(), ids=ENVELOPES.keys())
@pytest.mark.parametrize("schemas", [False, True])
def test_fields_in_the_envelope(fields: dict[str, Any], schemas: bool) -> None:
    value = with_schema(fields, "struct") if schemas else json.dumps(fields).encode()
    envelope = Debezium(type="envelope:eventType", version="envelope:version")
    assert envelope.has_versions
    found = event_of(envelope, record(value, ("id", ID.encode())), contiguous=True)
    assert (found.type, found.version, found.id) == ("OrderCreated", 7, UUID(ID))
    assert json.loads(found.data) == ORDER
    assert found.metadata == '{"who":"me"}'


def test_a_type_in_a_header_and_a_version_in_the_envelope() -> None:
    envelope = Debezium(version="envelope:version")
    found = event_of(envelope, record(b'{"version":3,"payload":{"a":1}}', *HEADERS))
    assert (found.type, found.version, found.data) == ("OrderCreated", 3, '{"a":1}')


def test_nothing_is_guessed_from_what_a_payload_looks_like() -> None:
    for text in (
        '{"payload":{"a":1},"eventType":"Other"}',
        '{"schema":"v2","payload":{}}',
        '{"schema":{"type":"x"},"payload":{},"more":1}',
        '{"a":{"schema":{"type":"x"},"payload":{}}}',
    ):
        assert event_of(Debezium(), record(text.encode(), *HEADERS)).data == text


def test_a_type_may_lie_in_the_payload_or_be_the_topic() -> None:
    for value in (b'{"meta":{"kind":"Placed","n":3}}', quoted('{"meta":{"kind":"Placed","n":3}}')):
        envelope = Debezium(type="payload:meta.kind", version="payload:meta.n")
        found = event_of(envelope, record(value), contiguous=True)
        assert (found.type, found.version) == ("Placed", 3)
    assert event_of(Debezium(type="topic"), record()).type == "orders"


def test_the_stream_may_lie_elsewhere() -> None:
    given = record(b'{"payload":{"order":17},"agg":"a-1"}', *HEADERS, ("agg", b'"h-1"'))
    for text, stream in {
        "header:agg": "h-1",
        "envelope:agg": "a-1",
        "payload:payload.order": "17",
    }.items():
        envelope = Debezium(stream=text)
        assert event_of(envelope, given).stream == stream
        assert envelope.stream_of(given) == stream
    assert Debezium(stream="header:none").stream_of(record(key=b'"1"')) == "1"
    assert Debezium(stream="envelope:agg").stream_of(record(b"nonsense", key=b'"1"')) == "1"


@pytest.mark.parametrize("value", [b"", b" ", b"null", b'""', b'" "', with_schema(None, "string")])
def test_an_empty_payload_is_null(value: bytes) -> None:
    assert event_of(Debezium(), record(value, *HEADERS)).data == "null"


def test_other_headers_are_metadata_where_they_are_text() -> None:
    given = record(
        b"{}",
        *HEADERS,
        ("traceparent", b"00-1-2-00"),
        ("aggregateType", b'"Order"'),
        ("number", b"007"),
        ("binary", b"\xff"),
        ("none", None),
        ("__debezium.context.connectorName", b"postgresql"),
    )
    found = event_of(Debezium(), given)
    assert json.loads(found.metadata) == {
        "traceparent": "00-1-2-00",
        "aggregateType": "Order",
        "number": "007",
    }


def test_a_payload_version_in_a_header_is_used_by_upcasters() -> None:
    class Placed(msgspec.Struct):
        amount: int

    types = EventTypes()
    types.register(Placed, version=2)
    types.upcaster("Placed", from_version=1)(lambda data: {"amount": -1})
    headers = (("id", ID.encode()), ("eventType", b"Placed"), ("schema_version", b"2"))
    found = types.decode(event_of(Debezium(), record(b'{"amount":5}', *headers)))
    assert found.data == Placed(amount=5)
    odd = event_of(Debezium(), record(b"{}", *HEADERS, ("schema_version", b"9" * 5_000)))
    assert json.loads(odd.metadata) == {"schema_version": "9" * 5_000}


def test_an_id_may_be_missing_or_no_uuid() -> None:
    kind = ("eventType", b"OrderCreated")
    texts = [(), (("id", b"596e275826f08b2730779e1f"),), (("id", b"17"),)]
    found = {event_of(Debezium(), record(b"{}", kind, *more)).id for more in texts}
    assert len(found) == 3
    assert Debezium().has_ids
    assert not Debezium(id=None).has_ids
    assert not Debezium().has_versions


WITH_FIELDS = Debezium(type="envelope:eventType")


@pytest.mark.parametrize(
    ("envelope", "given", "reason"),
    [
        (
            Debezium(),
            record(),
            "it has no type: nothing is at 'header:eventType'; look at "
            "table.fields.additional.placement of the connector, which may need "
            "COLUMN:header:eventType, or say with type=… where the type is",
        ),
        (WITH_FIELDS, record(b'{"payload":{}}'), "may need COLUMN:envelope:eventType"),
        (WITH_FIELDS, record(b'{"payload":{},"eventType":null}'), "it has no type"),
        (
            WITH_FIELDS,
            record(b'{"payload":{},"eventType":{}}'),
            "type, at 'envelope:eventType', is",
        ),
        (WITH_FIELDS, record(b'{"eventType":"X"}'), "not an object with a field 'payload'"),
        (WITH_FIELDS, record(quoted(SECRET)), "not an object with a field 'payload'"),
        (WITH_FIELDS, record(b"Struct{payload=s3cr3t}"), "not an object with a field 'payload'"),
        (WITH_FIELDS, record(b'{"a":' * 100_000), "not an object with a field 'payload'"),
        (
            WITH_FIELDS,
            record(b'{"payload":{},"eventType":"X","a":"\xff"}'),
            "its fields are not UTF-8",
        ),
        (Debezium(type="payload:kind"), record(b"[]"), "its payload is not a JSON object"),
        (Debezium(type="payload:kind"), record(b'{"a":1}'), "nothing is at 'payload:kind'; look"),
        (Debezium(), record(b"{}", *HEADERS, key=None), "it has no stream: nothing is at 'key'"),
        (Debezium(), record(b"{}", *HEADERS, key=b"\xff"), "its key is not UTF-8"),
        (Debezium(), record(b"{}", *HEADERS, key=b'""'), "stream name can't be empty"),
        (Debezium(), record(b"{}", ("eventType", b"\xff")), "header 'eventType' is not UTF-8"),
        (Debezium(), record(b"{}", ("eventType", b'""')), "event type can't be empty"),
        (Debezium(), record(b"\0\0\0\0\x01avro", *HEADERS), "its data is not JSON"),
        (Debezium(), record(b"\xff", *HEADERS), "its payload is not JSON"),
        (Debezium(), record(b'"s3cr3t', *HEADERS), "its payload is not JSON"),
        (Debezium(), record(quoted(SECRET), *HEADERS), "its data is not JSON"),
        (Debezium(), record(with_schema("czNjcjN0", "bytes"), *HEADERS), "its data is not JSON"),
        (
            Debezium(version="header:v"),
            record(b"{}", *HEADERS, ("v", b"s3cr3t")),
            "its version is a str",
        ),
        (
            Debezium(version="payload:v"),
            record(b'{"v":[]}', *HEADERS),
            "version, at 'payload:v', is neither",
        ),
    ],
)
def test_a_broken_message_is_refused(envelope: Debezium, given: Record, reason: str) -> None:
    assert reason in refused(envelope, given)


@pytest.mark.parametrize(
    ("setting", "text", "possible"),
    [
        ("stream", "topic", "'key', 'header:NAME', 'envelope:NAME', 'payload:dotted.path'"),
        ("stream", None, "'key', 'header:NAME', 'envelope:NAME', 'payload:dotted.path'"),
        ("type", "eventType", "'header:NAME', 'envelope:NAME', 'payload:dotted.path', 'topic'"),
        ("type", "key", "'header:NAME', 'envelope:NAME', 'payload:dotted.path', 'topic'"),
        ("version", "envelope:", "'header:NAME', 'envelope:NAME', 'payload:dotted.path'"),
        ("id", "key", "'header:NAME', 'envelope:NAME', 'payload:dotted.path'"),
    ],
)
def test_a_setting_that_is_no_field_path_says_what_is_possible(
    setting: str, text: Any, possible: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Debezium(**{setting: text})
    expected = f"Debezium({setting}={text!r}): this is not a field path; possible are {possible}"
    assert str(caught.value) == expected


NAMES = st.sampled_from(["id", "eventType", "version", "schema_version", "payload", "schema", "x"])
PLAIN = st.recursive(
    st.none() | st.integers() | st.text(st.characters(codec="utf-8")) | st.just({"type": "x"}),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
BYTES = st.binary() | PLAIN.map(lambda value: json.dumps(value).encode())


@given(st.none() | BYTES, BYTES, st.lists(st.tuples(NAMES, st.none() | BYTES)).map(tuple))
def test_random_bytes_are_an_event_or_undecodable(
    key: bytes | None, value: bytes, headers: tuple[Header, ...]
) -> None:
    given = Record("orders", 3, 41, TIME_MS, key, value, headers)
    for envelope in (
        Debezium(),
        Debezium(type="topic", id=None),
        Debezium(type="envelope:eventType", version="envelope:version"),
        Debezium(stream="payload:id", type="payload:x", version="payload:payload.version"),
    ):
        survives(envelope, given)
