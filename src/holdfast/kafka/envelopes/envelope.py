"""Envelopes: how an event lies in a Kafka record.

Each turns a record into what it says about an event, or raises Undecodable.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.errors import ConfigError
from holdfast.kafka.envelopes.cloudevents import CloudEvents
from holdfast.kafka.envelopes.debezium import Debezium
from holdfast.kafka.envelopes.field_path import (
    OTHER,
    Found,
    Parts,
    Place,
    first_stream,
    header_text,
    key_text,
    missing,
    needed,
    optional_place_of,
    place_of,
    scalar,
)
from holdfast.kafka.envelopes.usual import ID, RECORDED_AT, TYPE, VERSION
from holdfast.kafka.record import Decoded, Record, parse_time, undecodable
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import Undecodable

__all__ = ["CloudEvents", "Debezium", "Envelope", "Holdfast", "Json", "of_function"]


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


class Json:
    """An envelope of plain JSON, by settings that say where each thing lies.

    A place is `key`, `topic`, `header:NAME`, `payload:dotted.path` in the value, or `payload`, the
    whole value; None says that there is none. The defaults are for a value such as
    `{"type": …, "version": …, "id": …, "data": …, "metadata": …, "recorded_at": …}`, and the stream
    in the key, by which Kafka keeps order. Stream, type and data must be there; the rest may be
    missing in a record. `recorded_at` is a time in ISO 8601 with its zone.
    """

    def __init__(
        self,
        *,
        stream: str = "key",
        type: str = "payload:type",
        version: str | None = "payload:version",
        id: str | None = "payload:id",
        data: str = "payload:data",
        metadata: str | None = "payload:metadata",
        recorded_at: str | None = "payload:recorded_at",
    ) -> None:
        kinds = ("key", "topic", "header", "payload")
        self._stream = place_of(self, "stream", stream, kinds)
        self._type = place_of(self, "type", type, kinds)
        self._data = place_of(self, "data", data, kinds)
        self._version = optional_place_of(self, "version", version, kinds)
        self._id = optional_place_of(self, "id", id, kinds)
        self._metadata = optional_place_of(self, "metadata", metadata, kinds)
        self._recorded_at = optional_place_of(self, "recorded_at", recorded_at, kinds)
        self._parts = Parts(
            [
                *(self._stream, self._type, self._data, self._version),
                *(self._id, self._metadata, self._recorded_at),
            ]
        )
        self.has_versions, self.has_ids = version is not None, id is not None

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        parts = self._parts_of(record)
        data = self._at(self._data, record, parts)
        if data is None:
            raise missing(record, self._data)
        id = self._scalar(self._id, record, parts)
        return Decoded(
            stream=needed(record, self._stream, self._at(self._stream, record, parts)),
            type=needed(record, self._type, self._at(self._type, record, parts)),
            data=data,
            version=self._scalar(self._version, record, parts),
            id=None if id is None else str(id),
            metadata=self._object(record, parts),
            recorded_at=self._time(record, parts),
        )

    def stream_of(self, record: Record) -> str | None:
        """The stream; where its place can't be read, the key."""
        return first_stream(record, self._stream_in, key_text)

    def _stream_in(self, record: Record) -> str:
        parts = self._parts_of(record) if self._stream.kind == "payload" else None
        return needed(record, self._stream, self._at(self._stream, record, parts))

    def _parts_of(self, record: Record) -> Any:
        return self._parts.of(record, record.value or b"") if self._parts.are_needed else None

    def _at(self, place: Place, record: Record, parts: Any) -> Found:
        if place.kind == "payload":
            if place.names:
                return self._parts.at(place, parts)
            return None if record.value is None else msgspec.Raw(record.value)
        if place.kind == "header":
            return header_text(record, place.name)
        return key_text(record) if place.kind == "key" else record.topic

    def _scalar(self, place: Place | None, record: Record, parts: Any) -> str | int | None:
        if place is None:
            return None
        return scalar(record, place, self._at(place, record, parts))

    def _object(self, record: Record, parts: Any) -> str:
        if self._metadata is None:
            return "{}"
        found = self._at(self._metadata, record, parts)
        if found is None:
            return "{}"
        try:
            text = found if isinstance(found, str) else bytes(found).decode()
        except UnicodeDecodeError as error:
            raise undecodable(record, f"its metadata is not UTF-8; {OTHER}") from error
        return "{}" if text == "null" else text

    def _time(self, record: Record, parts: Any) -> datetime | None:
        value = self._scalar(self._recorded_at, record, parts)
        moment = parse_time(value) if isinstance(value, str) else None
        if moment is None and value is not None:
            raise undecodable(
                record,
                f"recorded_at, at {str(self._recorded_at)!r}, is not a time in ISO 8601 with a "
                "zone; name another place, or recorded_at=None for the record's own time",
            )
        return moment


class _Function:
    """An envelope that is a function of the user's."""

    has_versions = True
    has_ids = True

    def __init__(self, function: Callable[[Record], Decoded | None]) -> None:
        self._function = function

    def decode(self, record: Record) -> Decoded | None:
        try:
            decoded = self._function(record)
        except Undecodable:
            raise
        except Exception as error:
            # Not its text, which may quote the payload: it is there as the cause.
            raise undecodable(
                record, f"the decode function raised {type(error).__name__}"
            ) from error
        if decoded is not None and not isinstance(decoded, Decoded):
            raise undecodable(
                record,
                f"the decode function gave a {type(decoded).__name__}; it must give a Decoded, or "
                "None where there is nothing to apply",
            )
        return decoded

    def stream_of(self, record: Record) -> str | None:
        """The key: what the function would say is not known, as it has failed."""
        return first_stream(record, key_text)


def of_function(function: Callable[[Record], Decoded | None]) -> Envelope:
    """An envelope that decodes with a function of your own.

    It gets a Record, and gives a Decoded, or None where there is nothing to apply. Whatever it
    raises makes the record undecodable. Whether it gives versions and ids shows record by record.
    """
    if not callable(function):
        raise ConfigError(f"{function!r} can't be called; give a function that takes a Record")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{function!r} is async; a decode function only turns bytes into values")
    return _Function(function)


METADATA = "holdfast-metadata"


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
