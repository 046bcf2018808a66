"""Envelopes: our own, plain JSON by settings, and a function of the user's."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.event import RawEvent
from holdfast.kafka.envelopes import Envelope, Holdfast
from holdfast.kafka.records import Record, Undecodable, raw_event

SECRET = "s3cr3t"
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
NOON_MS = 1_709_208_000_000
ID = "4d47e190-0402-4048-bc2c-89dd54343cdc"


def record(
    value: bytes | None = b"{}", *headers: tuple[str, bytes | None], key: bytes | None = b"order-1"
) -> Record:
    return Record("orders", 3, 41, NOON_MS, key, value, headers)


def event_of(envelope: Envelope, record: Record, *, contiguous: bool = False) -> RawEvent:
    decoded = envelope.decode(record)
    assert decoded is not None
    return raw_event(record, decoded, contiguous=contiguous)


def refused(envelope: Envelope, record: Record, *, contiguous: bool = False) -> str:
    with pytest.raises(Undecodable) as caught:
        event_of(envelope, record, contiguous=contiguous)
    text = str(caught.value)
    start = "record of topic 'orders', partition 3, offset 41 can't be decoded: "
    assert text.startswith(start), text
    assert SECRET not in text
    assert SECRET not in str(caught.value.__cause__)
    return text


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
    id=st.uuids(),
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
    assert event_of(Holdfast(), own, contiguous=True) == event
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
    given = Record("orders", 3, 41, NOON_MS, key, value, headers)
    stream = Holdfast().stream_of(given)
    try:
        found = event_of(Holdfast(), given)
    except Undecodable:
        return
    assert found.stream == stream
