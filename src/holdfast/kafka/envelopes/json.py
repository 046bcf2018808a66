"""The envelope of plain JSON, by settings that say where each field is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

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
from holdfast.kafka.record import Decoded, Record, parse_time, undecodable


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
