"""CloudEvents in both modes of their binding to Kafka."""

import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError
from holdfast.kafka.envelopes.cloudevents import CloudEvents
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
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
JSON_EVENT: Header = ("content-type", b"application/cloudevents+json; charset=UTF-8")

ATTRIBUTES: dict[str, Any] = {
    "specversion": "1.0",
    "type": "com.example.placed",
    "source": "/shop",
    "id": ID,
    "subject": "order-2",
    "time": "2024-02-29T12:00:00.123456789Z",
    "sequence": "0007",
    "traceparent": "00-1-2-00",
}
METADATA = {
    "source": "/shop",
    "id": ID,
    "subject": "order-2",
    "sequence": "0007",
    "traceparent": "00-1-2-00",
}
DATA = {"amount": 5}


def structured(*headers: Header, key: bytes | None = b"order-1", **fields: Any) -> Record:
    """A field that is ... is left out."""
    event = {**ATTRIBUTES, "data": DATA, **fields}
    kept = {name: value for name, value in event.items() if value is not ...}
    return record(json.dumps(kept).encode(), *(headers or (JSON_EVENT,)), key=key)


def binary(
    value: bytes | None = b'{"amount":5}',
    *headers: Header,
    key: bytes | None = b"order-1",
    **attributes: Any,
) -> Record:
    """An attribute that is ... is left out."""
    own = [
        (f"ce_{name}", value if isinstance(value, bytes) else str(value).encode())
        for name, value in {**ATTRIBUTES, **attributes}.items()
        if value is not ...
    ]
    return record(value, *own, *(headers or (("content-type", b"application/json"),)), key=key)


@pytest.mark.parametrize("given", [structured(), binary()], ids=["structured", "binary"])
def test_both_modes_give_the_same_event(given: Record) -> None:
    found = event_of(CloudEvents(version="attribute:sequence"), given, contiguous=True)
    assert (found.stream, found.type, found.version) == ("order-2", "com.example.placed", 7)
    assert (found.id, json.loads(found.data)) == (UUID(ID), DATA)
    assert found.recorded_at == NOON.replace(microsecond=123456)
    metadata = json.loads(found.metadata)
    metadata.pop("datacontenttype", None)
    assert metadata == METADATA
    assert CloudEvents().stream_of(given) == "order-2"


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/cloudevents+json",
        b"Application/CloudEvents+JSON",
        b"application/cloudevents+json;charset=utf-8",
        None,
    ],
)
def test_structured_mode_is_told_by_the_content_type_or_else_by_the_value(
    content_type: bytes | None,
) -> None:
    headers: tuple[Header, ...] = (("content-type", content_type),)
    assert event_of(CloudEvents(), structured(*headers)).data == '{"amount": 5}'
    assert event_of(CloudEvents(), structured(("other", b"x"))).data == '{"amount": 5}'


def test_the_content_type_counts_before_other_headers() -> None:
    given = structured(JSON_EVENT, ("ce_specversion", b"1.0"), ("ce_type", b"other"))
    assert event_of(CloudEvents(), given).type == "com.example.placed"


@pytest.mark.parametrize(
    "content_type",
    [b"application/json", b"text/json", b"application/vnd.acme.v1+json; charset=utf-8", None],
)
def test_binary_mode_takes_json(content_type: bytes | None) -> None:
    found = event_of(CloudEvents(), binary(b"[1.50]", ("content-type", content_type)))
    assert found.data == "[1.50]"
    kind = json.loads(found.metadata).get("datacontenttype")
    assert kind == (None if content_type is None else content_type.decode())


def test_data_in_every_form() -> None:
    def data(**fields: Any) -> str:
        return event_of(CloudEvents(), structured(**fields)).data

    coded = base64.b64encode(b'{"a":1.50}').decode()
    assert data(data={"a": [1, None]}) == '{"a": [1, null]}'
    assert data(data=None) == "null"
    assert data(data=...) == "null"
    assert data(data="just text") == '"just text"'
    assert data(data="<xml/>", datacontenttype="application/xml") == '"<xml/>"'
    assert data(data=..., data_base64=coded) == '{"a":1.50}'
    assert data(data=..., data_base64=coded, datacontenttype="text/json") == '{"a":1.50}'
    assert data(data=1, data_base64=None) == "1"
    assert event_of(CloudEvents(), binary(b"")).data == "null"


def test_an_id_that_is_no_uuid_counts_with_its_source() -> None:
    def id(**fields: Any) -> UUID:
        found = event_of(CloudEvents(), structured(**fields)).id
        assert found == event_of(CloudEvents(), binary(**fields)).id
        return found

    assert id(id="a-1") == id(id="a-1")
    assert len({id(id="a-1"), id(id="a-2"), id(id="a-1", source="/other")}) == 3
    assert id(source="/other") == UUID(ID)
    assert json.loads(event_of(CloudEvents(), structured(id="a-1")).metadata)["id"] == "a-1"


@pytest.mark.parametrize("make", [structured, binary])
def test_without_a_subject_the_key_is_the_stream(make: Any) -> None:
    assert event_of(CloudEvents(), make(subject=...)).stream == "order-1"
    assert CloudEvents().stream_of(make(subject=...)) == "order-1"
    assert event_of(CloudEvents(), make(key=None)).stream == "order-2"
    text = refused(CloudEvents(), make(subject=..., key=None))
    assert "it has no stream: nothing is at 'key'" in text
    assert CloudEvents().stream_of(make(subject=..., key=None)) is None


@pytest.mark.parametrize("make", [structured, binary])
def test_stream_and_version_may_lie_elsewhere(make: Any) -> None:
    given = make(partitionkey="p-1", order=17)
    for text, stream in {
        "key": "order-1",
        "attribute:partitionkey": "p-1",
        "attribute:order": "17",
        "payload:amount": "5",
    }.items():
        envelope = CloudEvents(stream=text, version="payload:amount")
        found = event_of(envelope, given, contiguous=True)
        assert (found.stream, found.version) == (stream, 5)
        assert envelope.stream_of(given) == stream
    assert CloudEvents(version="attribute:sequence").has_versions
    assert not CloudEvents().has_versions
    assert CloudEvents().has_ids


def test_attributes_may_be_missing() -> None:
    for own in (structured(time=..., sequence=...), structured(time=None, sequence=None)):
        found = event_of(CloudEvents(version="attribute:sequence"), own)
        assert (found.recorded_at, found.version) == (NOON, 42)
        assert "sequence" not in json.loads(found.metadata)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29t12:00:00z", NOON),
        ("2024-02-29t13:00:00.000+01:00", NOON),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2017-01-01t00:59:60.5+01:00", datetime(2017, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_times_as_rfc_3339_allows_them(text: str, expected: datetime) -> None:
    for sent in (structured(time=text), binary(time=text)):
        assert event_of(CloudEvents(), sent).recorded_at == expected


def test_attributes_keep_their_types() -> None:
    found = event_of(CloudEvents(), structured(number=7, flag=True, none=None))
    metadata = json.loads(found.metadata)
    assert (metadata["number"], metadata["flag"]) == (7, True)
    assert "none" not in metadata


def test_a_tombstone_has_a_lane_all_the_same() -> None:
    assert CloudEvents().stream_of(binary(None)) == "order-2"
    assert CloudEvents().stream_of(record(None)) == "order-1"
    assert CloudEvents().stream_of(record(b"nonsense", key=None)) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            record(b"nonsense"),
            "it is no CloudEvent: it has no header 'ce_specversion', and its value",
        ),
        (record(b"[]"), "its value is not a JSON object"),
        (record(b"{}"), "its value has no field 'specversion'"),
        (record(b'{"a":' * 100_000), "its value is not a JSON object"),
        (structured(specversion=None), "it has no specversion"),
        (structured(specversion="0.3"), "its specversion is not 1.x"),
        (structured(specversion="2.0"), "its specversion is not 1.x"),
        (structured(specversion=SECRET), "its specversion is not 1.x"),
        (structured(type=...), "it has no type: nothing is at 'attribute:type'"),
        (structured(type=None), "it has no type"),
        (structured(type=""), "it has no type"),
        (structured(type=[SECRET]), "type, at 'attribute:type', is neither text nor"),
        (structured(source=...), "it has no source"),
        (structured(id=...), "it has no id"),
        (structured(id=""), "it has no id"),
        (structured(id={}), "id, at 'attribute:id', is neither"),
        (structured(subject=""), "stream name can't be empty"),
        (structured(subject=[]), "stream, at 'attribute:subject', is neither"),
        (structured(time=SECRET), "its time is not one as RFC 3339"),
        (structured(time="2024-02-29T12:00:00"), "its time is not one as RFC 3339"),
        (structured(time=1709208000), "its time is not one as RFC 3339"),
        (structured(time="2024-02-29T12:00:60Z"), "its time is not one as RFC 3339"),
        (structured(time="9999-12-31T23:59:60Z"), "its time is not one as RFC 3339"),
        (structured(data_base64="e30="), "it has both data and data_base64"),
        (structured(data=..., data_base64=SECRET + "*"), "not UTF-8, or not base64"),
        (structured(data=..., data_base64="é"), "not UTF-8, or not base64"),
        (structured(data=..., data_base64="/w=="), "not UTF-8, or not base64"),
        (structured(data=..., data_base64=[]), "data_base64, at 'attribute:data_base64', is"),
        (structured(data=..., data_base64="e30"), "not UTF-8, or not base64"),
        (
            structured(data=..., data_base64="e30=", datacontenttype="application/avro"),
            "its datacontenttype says that its data is not JSON",
        ),
        (
            structured(("content-type", b"application/cloudevents+avro")),
            "in another format than JSON, or a batch",
        ),
        (
            structured(("content-type", b"application/cloudevents-batch+json")),
            "in another format than JSON, or a batch",
        ),
        (structured(("content-type", b"\xff")), "its header 'content-type' is not UTF-8"),
        (binary(b"{}", ("content-type", b"application/avro")), "its data is not JSON"),
        (binary(b"{}", ("content-type", b"text/plain")), "its data is not JSON"),
        (binary(SECRET.encode()), "its data is not JSON"),
        (binary(b"\xff"), "its data is not UTF-8"),
        (binary(specversion="0.3"), "its specversion is not 1.x"),
        (binary(type=...), "it has no type"),
        (binary(source=...), "it has no source"),
        (binary(id=...), "it has no id"),
        (binary(time="noon"), "its time is not one"),
        (binary(tenant=b"\xff"), "its header 'ce_tenant' is not UTF-8"),
        (binary(subject="a\0"), "stream name contains a NUL"),
    ],
)
def test_a_broken_event_is_refused(given: Record, reason: str) -> None:
    assert reason in refused(CloudEvents(), given)


def test_a_sequence_that_is_no_number_is_refused() -> None:
    envelope = CloudEvents(version="attribute:sequence")
    assert "its version is a str" in refused(envelope, structured(sequence=SECRET))
    text = refused(envelope, structured(sequence=...), contiguous=True)
    assert "it has no version" in text


def test_attributes_that_are_not_utf8_are_refused() -> None:
    value = b'{"specversion":"1.0","type":"t","source":"s","id":"i","a":"\xff"}'
    assert "its attributes are not UTF-8" in refused(CloudEvents(), record(value))


@pytest.mark.parametrize(
    ("setting", "text", "possible"),
    [
        ("stream", "subject", "'attribute:NAME', 'key', 'payload:dotted.path'"),
        ("stream", "header:x", "'attribute:NAME', 'key', 'payload:dotted.path'"),
        ("stream", "", "'attribute:NAME', 'key', 'payload:dotted.path'"),
        ("version", "key", "'attribute:NAME', 'payload:dotted.path'"),
        ("version", 7, "'attribute:NAME', 'payload:dotted.path'"),
    ],
)
def test_a_setting_that_is_no_field_path_says_what_is_possible(
    setting: str, text: Any, possible: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        CloudEvents(**{setting: text})
    expected = f"CloudEvents({setting}={text!r}): this is not a field path; possible are {possible}"
    assert str(caught.value) == expected


ATTRIBUTE = st.sampled_from([*ATTRIBUTES, "data", "data_base64", "datacontenttype", "x"])
PLAIN = st.recursive(
    st.none() | st.integers() | st.booleans() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ATTRIBUTE, inner, max_size=2),
    max_leaves=4,
)
EVENTS = st.dictionaries(ATTRIBUTE, PLAIN).map(
    lambda fields: json.dumps({**ATTRIBUTES, **fields}).encode()
)
VALUES = st.none() | st.binary() | EVENTS
NAMES = st.builds("ce_{}".format, ATTRIBUTE) | st.just("content-type")
CONTENT = st.sampled_from([b"application/json", JSON_EVENT[1], b"1.0"])


@given(
    st.none() | st.binary(),
    VALUES,
    st.lists(st.tuples(NAMES, st.none() | st.binary() | CONTENT)),
    st.booleans(),
)
def test_random_bytes_are_an_event_or_undecodable(
    key: bytes | None, value: bytes | None, headers: list[Header], is_binary: bool
) -> None:
    own = list(binary().headers) if is_binary else []
    given = Record("orders", 3, 41, TIME_MS, key, value, (*own, *headers))
    survives(CloudEvents(), given)
    survives(CloudEvents(stream="key", version="payload:x.id"), given)
    survives(CloudEvents(stream="payload:id", version="attribute:sequence"), given)
