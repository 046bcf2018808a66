"""Records for tests of envelopes, and what becomes of them."""

from __future__ import annotations

import pytest

from holdfast.kafka.envelopes.envelope import Envelope
from holdfast.kafka.record import Record, raw_event
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import Undecodable

SECRET = "s3cr3t"
"""What no message may show."""

TIME_MS = 1_709_208_000_000
"""Noon of 29 February 2024 in UTC."""

Header = tuple[str, bytes | None]


def record(value: bytes | None = b"{}", *headers: Header, key: bytes | None = b"order-1") -> Record:
    """A record of the topic orders."""
    return Record("orders", 3, 41, TIME_MS, key, value, headers)


def event_of(envelope: Envelope, record: Record, *, contiguous: bool = False) -> RawEvent:
    """The event that an envelope finds in a record."""
    decoded = envelope.decode(record)
    assert decoded is not None
    return raw_event(record, decoded, contiguous=contiguous)


def refused(envelope: Envelope, record: Record, *, contiguous: bool = False) -> str:
    """Why an envelope finds none: the message, which shows nothing secret."""
    with pytest.raises(Undecodable) as caught:
        event_of(envelope, record, contiguous=contiguous)
    text = str(caught.value)
    start = "record of topic 'orders', partition 3, offset 41 can't be decoded: "
    assert text.startswith(start), text
    assert SECRET not in text
    assert SECRET not in str(caught.value.__cause__)
    return text


def survives(envelope: Envelope, record: Record) -> None:
    """Whatever is in a record, it is an event or undecodable, and its lane can be asked for."""
    stream = envelope.stream_of(record)
    try:
        found = event_of(envelope, record)
    except Undecodable:
        return
    assert found.stream == stream
    assert "\0" not in found.data + found.metadata + found.stream
