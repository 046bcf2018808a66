"""Record: one record of a topic; and how it becomes an event, once an envelope has decoded it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid5

import msgspec

from holdfast.errors import AppendError, PayloadError
from holdfast.model.event import ForeignEvent, check_stream, check_type
from holdfast.model.event_types import plain_json
from holdfast.model.foreign_feed import UNDECODABLE, Undecodable

RESERVED = "holdfast."
"""Prefix of the event types that stand for records which hold no event."""

MAX_VERSION = 2**63 - 1

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

IDS = UUID("3d9f3a52-6c1e-5b0e-9f0a-7c1d6f2b8e41")
"""Namespace of the ids that are made from text. Never change it: such ids are in databases."""

POSITIONS = UUID("a7c0f6de-25b4-5d0c-8d6b-51e8b1b0c9f3")
"""Namespace of the ids that are made from topic, partition and offset. Never change it."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a topic, as the broker has it.

    `timestamp_ms` is None if the record has none; `value` is None for a tombstone.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def header(self, name: str) -> bytes | None:
        """The value of the last header with this name; None if it is missing, or has no value."""
        for own, value in reversed(self.headers):
            if own == name:
                return value
        return None


class Decoded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a record says, as an envelope or your own decode function has read it.

    `data` is the payload: a str, bytes or msgspec.Raw is JSON text, anything else is a plain JSON
    value (so plain text is written as `json.dumps(text)`). `version` counts within the stream.
    `id` is a UUID, or a text that no other event has: the same text always gives the same UUID.
    `metadata` is a dict, or the JSON text of one. Missing fields come from the record: the id from
    its topic, partition and offset, `recorded_at` from its timestamp.
    """

    stream: str
    type: str
    data: Any
    version: int | str | None = None
    id: UUID | str | None = None
    metadata: Mapping[str, Any] | str = {}
    recorded_at: datetime | None = None


class KafkaEvent(ForeignEvent, frozen=True, array_like=True, gc=False):
    """An event with the record from which it was decoded."""

    record: Record

    def kept(self) -> str:
        return record_json(self.record)


def undecodable(record: Record, problem: str) -> Undecodable:
    """The error for a record; `problem` says what is wrong and what to do.

    A problem names headers and fields, never their values: values may be secret, and errors are
    logged.
    """
    return Undecodable(
        f"record of topic {record.topic!r}, partition {record.partition}, offset {record.offset} "
        f"can't be decoded: {problem}"
    )


def raw_event(record: Record, decoded: Decoded, *, contiguous: bool) -> KafkaEvent:
    """The event that a record holds; raises Undecodable.

    `contiguous`: versions count 1, 2, 3… within the stream, so each event needs one. Otherwise the
    position stands in for a missing version.
    """
    try:
        stream, type_name = check_stream(decoded.stream), _check_type(decoded.type)
    except (AppendError, TypeError):
        raise _bad_name(record, decoded) from None
    version = decoded.version
    if type(version) is not int or not 0 <= version <= MAX_VERSION:
        version = _version(record, version, contiguous=contiguous)
    metadata, moment = decoded.metadata, decoded.recorded_at
    if type(moment) is not datetime or moment.tzinfo is not UTC:
        moment = _recorded_at(record, moment)
    return KafkaEvent(
        record.offset + 1,
        stream,
        version,
        str(_id(record, decoded.id)),
        type_name,
        _json_text(record, decoded.data),
        metadata if metadata == "{}" else _metadata(record, metadata),
        moment,
        record,
    )


def unreadable_event(record: Record, stream: str, error: Undecodable) -> KafkaEvent:
    """The event of type UNDECODABLE for a record, in the lane of `stream`."""
    text = str(error).encode("utf-8", "backslashreplace").decode()
    return KafkaEvent(
        record.offset + 1,
        stream,
        0,
        str(_id_by_position(record)),
        UNDECODABLE,
        msgspec.json.encode({"error": text}).decode(),
        "{}",
        _recorded_at(record, None),
        record,
    )


def record_json(record: Record) -> str:
    """A record as JSON text, without any loss; bytes are base64."""
    return _encode(record).decode()


def record_from_json(text: str) -> Record:
    """The record in a text of `record_json`."""
    try:
        return _decode_record(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise PayloadError(f"this is no record's JSON: {error}") from error


def stream_or_none(name: object) -> str | None:
    """`name`, if it can be a stream's name."""
    try:
        return check_stream(name)
    except AppendError:
        return None


def parse_time(text: str) -> datetime | None:
    """The time in a text, in UTC; None if it is not ISO 8601 with a zone.

    `t` and `z` may be small, as RFC 3339 allows. A leap second is the second after it.
    """
    try:
        moment = datetime.fromisoformat(text if text.isupper() else text.upper())
        return None if moment.tzinfo is None else _in_utc(moment)
    except (ValueError, OverflowError):
        return _leap_second(text.upper())


def _leap_second(text: str) -> datetime | None:
    before, leap, rest = text.partition(":60")
    if not leap or ":60" in rest:
        return None
    moment = parse_time(f"{before}:59{rest}")
    if moment is None or (moment.hour, moment.minute, moment.second) != (23, 59, 59):
        return None
    try:
        return moment + timedelta(seconds=1)
    except OverflowError:
        return None


_convert = msgspec.convert
_encode = msgspec.json.Encoder().encode
_decode_record = msgspec.json.Decoder(Record).decode
_scan = msgspec.json.Decoder(msgspec.Raw).decode
_scan_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_check_type = lru_cache(maxsize=1024)(check_type)


def _bad_name(record: Record, decoded: Decoded) -> Undecodable:
    checks = (
        ("stream name", decoded.stream, check_stream),
        ("event type", decoded.type, check_type),
    )
    for what, name, check in checks:
        try:
            check(name)
        except AppendError as error:
            # Without the name, which is a value of the payload.
            reason = str(error).replace(f"{what} {name!r}", what)
            return undecodable(record, f"{reason}; look at its producer, or decode it otherwise")
    raise AssertionError("both names are valid")


def _version(record: Record, version: object, *, contiguous: bool) -> int:
    if isinstance(version, str) and version.isdecimal():
        # Cut to 20 digits: int() is slow on long texts, and refuses very long ones.
        number = int(version if len(version) < 20 else version.lstrip("0")[:20] or "0")
        if number <= MAX_VERSION:
            return number
    if version is None and not contiguous:
        return record.offset + 1
    if version is None:
        raise undecodable(
            record,
            "it has no version, and the source expects versions that count 1, 2, 3… in each "
            "stream; tell the envelope where the version is, or say contiguous=False",
        )
    raise undecodable(
        record,
        f"its version is a {type(version).__name__} that is no whole number from 0 to 2⁶³ - 1; "
        "tell the envelope where the version is",
    )


def _id(record: Record, id: UUID | str | None) -> UUID:
    if id is None:
        return _id_by_position(record)
    if isinstance(id, UUID):
        return id
    if not isinstance(id, str):
        raise undecodable(record, f"its id is a {type(id).__name__}; an id is a UUID or text")
    try:
        return _convert(id, UUID)
    except msgspec.ValidationError:
        return uuid5(IDS, id)
    except UnicodeEncodeError as error:
        raise undecodable(record, "its id is not valid Unicode; fix its producer") from error


def _id_by_position(record: Record) -> UUID:
    # A topic's name holds no slash.
    return uuid5(POSITIONS, f"{record.topic}/{record.partition}/{record.offset}")


def _json_text(record: Record, data: Any) -> str:
    """The payload as JSON text.

    It is decoded later, but scanned here, which costs a quarter of decoding. Otherwise broken text
    would go with the event where it does harm: to the queue's table (a NUL), or to consumers of
    what is published.
    """
    try:
        if type(data) is not str:
            if isinstance(data, bytes | msgspec.Raw):
                data = bytes(data).decode()
            elif isinstance(data, str):
                data = str.__str__(data)
            else:
                data = _plain_text(data)
        _scan(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise undecodable(
            record, f"its data is not JSON: {error}; use the envelope that its producer writes"
        ) from error
    except PayloadError as error:
        raise undecodable(record, str(error)) from error
    text: str = data
    return text


def _metadata(record: Record, metadata: Mapping[str, Any] | str) -> str:
    try:
        if isinstance(metadata, str):
            _scan_object(metadata)
            return str.__str__(metadata)
        if isinstance(metadata, Mapping):
            return _plain_text(metadata, what="metadata")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise undecodable(record, f"its metadata is not a JSON object: {error}") from error
    except PayloadError as error:
        raise undecodable(record, str(error)) from error
    raise undecodable(record, f"its metadata is a {type(metadata).__name__}, and no object")


def _plain_text(value: Any, *, what: str = "data") -> str:
    """A user's value as JSON text; raises PayloadError for a value that JSON would change."""
    plain = plain_json({what: value}, what="what the decode function gave")[what]
    try:
        return _encode(plain).decode()
    except (OverflowError, RecursionError) as error:
        raise PayloadError(f"{what} can't be written as JSON: {error}") from error


def _recorded_at(record: Record, moment: datetime | None) -> datetime:
    if moment is None:
        try:
            return EPOCH + (record.timestamp_ms or 0) * MILLISECOND
        except OverflowError:
            # The broker keeps any number that a producer sends; the event counts nevertheless.
            return EPOCH
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise undecodable(
            record,
            f"recorded_at is a {type(moment).__name__} without a time zone; give a datetime in UTC",
        )
    if moment.tzinfo is UTC:
        return moment
    try:
        return _in_utc(moment)
    except OverflowError as error:
        raise undecodable(record, "recorded_at is out of range in UTC") from error


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
