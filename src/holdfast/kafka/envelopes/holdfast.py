"""The envelope of our own publisher, with a fast path for the records that it writes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from confluent_kafka import Message

from holdfast.kafka.envelopes.field_path import OTHER, first_stream, key_text
from holdfast.kafka.record import (
    MAX_VERSION,
    RESERVED,
    Decoded,
    Record,
    parse_time,
    record_json,
    undecodable,
)
from holdfast.model.event import ForeignEvent, RawEvent, check_stream, check_type
from holdfast.model.foreign_feed import Undecodable

TYPE = "holdfast-type"
VERSION = "holdfast-version"
ID = "holdfast-id"
RECORDED_AT = "holdfast-recorded-at"
METADATA = "holdfast-metadata"


class Holdfast:
    """The envelope that KafkaPublisher writes.

    The key is the stream, and the value is the payload as JSON. Header `holdfast-type` is required.
    Headers `holdfast-version`, `holdfast-id`, `holdfast-recorded-at` (ISO 8601 with a zone) and
    `holdfast-metadata` (a JSON object) are optional.
    """

    has_versions = True
    has_ids = True

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        get = dict(record.headers).get
        key, value, type_name = record.key, record.value, get(TYPE)
        if key is None or value is None or type_name is None:
            raise _missing(record)
        id, version, at, metadata = get(ID), get(VERSION), get(RECORDED_AT), get(METADATA)
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
        return first_stream(record, key_text)

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


class PublishedEvent(ForeignEvent, frozen=True, array_like=True, gc=False):
    """An event read on the fast path, with what its record needs to be rebuilt byte for byte."""

    topic: str
    partition: int
    timestamp_ms: int
    version_text: bytes
    recorded_at_text: bytes

    @property
    def record(self) -> Record:
        """The record that the event came in."""
        return Record(
            self.topic,
            self.partition,
            self.position - 1,
            self.timestamp_ms if self.timestamp_ms > 0 else None,
            self.stream.encode(),
            self.data.encode(),
            (
                (TYPE, self.type.encode()),
                (VERSION, self.version_text),
                (ID, self.id_text.encode()),
                (RECORDED_AT, self.recorded_at_text),
            ),
        )

    def kept(self) -> str:
        return record_json(self.record)


def published_event(message: Message, topic: str, partition: int) -> PublishedEvent | None:
    """Fast path: the event in a message with exactly the headers of an event without metadata.

    Returns None for every other message, which `Holdfast.decode` then reads or refuses. The checks
    of streams and types are cached, and the record is only rebuilt when the event is kept.
    """
    given: Any = message
    try:
        (name_1, type_name), (name_2, version), (name_3, id_), (name_4, at) = given.headers()
        if name_1 != TYPE or name_2 != VERSION or name_3 != ID or name_4 != RECORDED_AT:
            return None
        moment = _parse_time(at.decode())
        value = given.value()
        if not (moment.tzinfo is UTC and version.isdigit() and len(version) < 20 and _is_id(id_)):
            return None
        number = int(version)
        if number > MAX_VERSION:
            return None
        _scan(value)
        return PublishedEvent(
            given.offset() + 1,
            _stream_of(given.key()),
            number,
            id_.decode(),
            _type_of(type_name),
            value.decode(),
            "{}",
            moment,
            topic,
            partition,
            given.timestamp()[1],
            version,
            at,
        )
    except Exception:
        return None


_parse_time = datetime.fromisoformat
_is_id = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_scan = msgspec.json.Decoder(msgspec.Raw).decode


@lru_cache(maxsize=50_000)
def _stream_of(key: bytes) -> str:
    return check_stream(key.decode())


@lru_cache(maxsize=1024)
def _type_of(name: bytes) -> str:
    if name.startswith(RESERVED.encode()):
        raise ValueError("the type is reserved")
    return check_type(name.decode())


def _missing(record: Record) -> Undecodable:
    if record.key is None:
        what = "key, which names the stream"
    else:
        what = "value" if record.value is None else f"header {TYPE!r}"
    return undecodable(record, f"it has no {what}; {OTHER}")


def _not_text(record: Record) -> Undecodable:
    parts = {"key": record.key, "value": record.value}
    parts |= {f"header {name!r}": value for name, value in record.headers}
    for name, value in parts.items():
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return undecodable(record, f"its {name} is not UTF-8; {OTHER}")
    raise AssertionError("every part is UTF-8")


def _time(record: Record, value: bytes) -> datetime:
    moment = parse_time(value.decode())
    if moment is None:
        raise undecodable(
            record, f"header {RECORDED_AT!r} is not a time in ISO 8601 with a zone; {OTHER}"
        )
    return moment
