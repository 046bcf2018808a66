"""The envelope of plain JSON, by settings that say where each field is."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.kafka.envelopes.field_path import (
    OTHER,
    FieldPath,
    Found,
    Payload,
    PayloadReader,
    field_path,
    first_stream,
    header_text,
    key_text,
    missing,
    optional_field_path,
    scalar_at,
    text_at,
)
from holdfast.kafka.record import Decoded, Record, parse_time, undecodable


class Json:
    """An envelope for plain JSON; its settings are field paths.

    A field path is `key`, `topic`, `header:NAME`, `payload:dotted.path` in the value, or `payload`,
    the whole value. None says that the field never exists. The defaults fit a value such as
    `{"type": …, "version": …, "id": …, "data": …, "metadata": …, "recorded_at": …}`, with the
    stream in the key, by which Kafka keeps order. Every record needs a stream, a type and data; the
    rest is optional. `recorded_at` is a time in ISO 8601 with its zone.
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
        self._stream = field_path(self, "stream", stream, kinds)
        self._type = field_path(self, "type", type, kinds)
        self._data = field_path(self, "data", data, kinds)
        self._version = optional_field_path(self, "version", version, kinds)
        self._id = optional_field_path(self, "id", id, kinds)
        self._metadata = optional_field_path(self, "metadata", metadata, kinds)
        self._recorded_at = optional_field_path(self, "recorded_at", recorded_at, kinds)
        self._reader = PayloadReader(
            [
                *(self._stream, self._type, self._data, self._version),
                *(self._id, self._metadata, self._recorded_at),
            ]
        )
        self.has_versions, self.has_ids = version is not None, id is not None

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        fields = _Fields(record, self._reader.read(record, record.value or b""))
        data = fields.at(self._data)
        if data is None:
            raise missing(record, self._data)
        id = scalar_at(fields, self._id)
        return Decoded(
            stream=text_at(fields, self._stream),
            type=text_at(fields, self._type),
            data=data,
            version=scalar_at(fields, self._version),
            id=None if id is None else str(id),
            metadata=self._metadata_in(fields),
            recorded_at=self._time_in(fields),
        )

    def stream_of(self, record: Record) -> str | None:
        """The stream; where it can't be read, the key."""
        return first_stream(record, self._stream_in, key_text)

    def _stream_in(self, record: Record) -> str:
        is_inside = self._stream.kind == "payload"
        payload = self._reader.read(record, record.value or b"") if is_inside else None
        return text_at(_Fields(record, payload), self._stream)

    def _metadata_in(self, fields: _Fields) -> str:
        found = None if self._metadata is None else fields.at(self._metadata)
        if found is None:
            return "{}"
        try:
            text = found if isinstance(found, str) else bytes(found).decode()
        except UnicodeDecodeError as error:
            raise undecodable(fields.record, f"its metadata is not UTF-8; {OTHER}") from error
        return "{}" if text == "null" else text

    def _time_in(self, fields: _Fields) -> datetime | None:
        value = scalar_at(fields, self._recorded_at)
        moment = parse_time(value) if isinstance(value, str) else None
        if moment is None and value is not None:
            raise undecodable(
                fields.record,
                f"recorded_at, at {str(self._recorded_at)!r}, is not a time in ISO 8601 with a "
                "zone; name another field, or recorded_at=None for the record's own time",
            )
        return moment


class _Fields(msgspec.Struct, frozen=True, gc=False):
    record: Record
    payload: Payload | None

    def at(self, path: FieldPath) -> Found:
        match path.kind:
            case "key":
                return key_text(self.record)
            case "topic":
                return self.record.topic
            case "header":
                return header_text(self.record, path.name)
            case _:
                return None if self.payload is None else self.payload.at(path)
