"""Envelopes: how an event lies in a Kafka record.

Each turns a record into what it says about an event, or raises Undecodable.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from holdfast.core.event import RawEvent
from holdfast.kafka.records import (
    Decoded,
    Record,
    Undecodable,
    parse_time,
    stream_or_none,
    undecodable,
)


class Envelope(Protocol):
    """How the events of a topic are written.

    It is never given a tombstone, a record without a value: what that means is for the source.
    """

    @property
    def has_versions(self) -> bool:
        """Whether it can give versions at all, as it is set up."""
        ...

    @property
    def has_ids(self) -> bool:
        """Whether it can give ids at all, as it is set up."""
        ...

    def decode(self, record: Record) -> Decoded | None:
        """What a record says; None where it holds nothing to apply. Raises Undecodable."""
        ...

    def stream_of(self, record: Record) -> str | None:
        """The stream, where it can be told though the rest can't be read.

        Never raises: this is the lane in which an undecodable record waits for somebody.
        """
        ...


class Holdfast:
    """Our own envelope: what a journal's publisher writes.

    The key is the stream, the value is the payload as JSON. Headers: `holdfast-type`, and where
    they are known `holdfast-version`, `holdfast-id`, `holdfast-recorded-at` (ISO 8601 with a zone)
    and `holdfast-metadata` (a JSON object).
    """

    has_versions = True
    has_ids = True

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        headers = dict(record.headers)
        get = headers.get
        key, value, type_name = record.key, record.value, get(TYPE)
        if key is None or value is None or type_name is None:
            raise _missing(record)
        id, version, at = get(ID), get(VERSION), get(RECORDED_AT)
        metadata = get(METADATA)
        try:
            return Decoded(
                stream=key.decode(),
                type=type_name.decode(),
                data=value.decode(),
                version=None if version is None else version.decode(),
                id=None if id is None else id.decode(),
                metadata="{}" if metadata is None else metadata.decode(),
                recorded_at=None if at is None else _time(record, at),
            )
        except UnicodeDecodeError as error:
            raise _not_text(record) from error

    def stream_of(self, record: Record) -> str | None:
        """The key, where it can be a stream's name."""
        return key_or_none(record)

    def encode(self, event: RawEvent) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
        """An event as key, value and headers."""
        headers: list[tuple[str, bytes]] = [
            (TYPE, event.type.encode()),
            (VERSION, str(event.version).encode()),
            (ID, str(event.id).encode()),
            (RECORDED_AT, event.recorded_at.isoformat().encode()),
        ]
        if event.metadata != "{}":
            headers.append((METADATA, event.metadata.encode()))
        return event.stream.encode(), event.data.encode(), headers


TYPE = "holdfast-type"
VERSION = "holdfast-version"
ID = "holdfast-id"
RECORDED_AT = "holdfast-recorded-at"
METADATA = "holdfast-metadata"


def key_or_none(record: Record) -> str | None:
    """The key as text, where it can be a stream's name."""
    try:
        return None if record.key is None else stream_or_none(record.key.decode())
    except UnicodeDecodeError:
        return None


OTHER = "use the envelope that its producer writes, or a decode function"
"""What to do about a record that has another form than its envelope."""


def _missing(record: Record) -> Undecodable:
    what = (
        "key, which names the stream"
        if record.key is None
        else "value"
        if record.value is None
        else f"header {TYPE!r}"
    )
    return undecodable(record, f"it has no {what}; {OTHER}")


def _not_text(record: Record) -> Undecodable:
    parts = {"key": record.key, "value": record.value}
    parts |= {f"header {name!r}": value for name, value in record.headers}
    for name, value in parts.items():
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return undecodable(record, f"its {name} is not UTF-8; {OTHER}")
    raise AssertionError("all of it is UTF-8")


def _time(record: Record, value: bytes) -> datetime:
    moment = parse_time(value.decode())
    if moment is None:
        raise undecodable(
            record, f"header {RECORDED_AT!r} is not a time in ISO 8601 with a zone; {OTHER}"
        )
    return moment
