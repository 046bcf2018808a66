"""The envelope of Debezium's outbox event router."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

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
    optional_field_path,
    scalar_at,
    text_at,
)
from holdfast.kafka.record import Decoded, Record, undecodable
from holdfast.model.event_types import VERSION_KEY
from holdfast.model.foreign_feed import Undecodable

INTERNAL = "__debezium"
"""Prefix of the headers that describe the connector, and not the event."""


class Debezium:
    """The messages of Debezium's outbox event router, in JSON or as plain text.

    The key is the aggregate's id, which is the stream. The value is the payload: an object, or text
    that holds JSON (`table.expand.json.payload` is off). Header `id` is the event's id, and the
    record's time is when it was recorded. Schemas may be on or off, key and headers quoted or not.

    The router sends no event type unless it is told to: name the column in the connector's
    `table.fields.additional.placement`, as `type:header:eventType`. `type` says where it is then:
    `header:NAME`, `envelope:NAME`, `payload:dotted.path`, or `topic` where each type has its own.
    `version` is for a column that counts the events of an aggregate; there is none by default.
    Where any setting says `envelope:`, the value is an object with the payload in its field
    `payload`; nothing is guessed from what the value looks like. All other headers and fields of
    the envelope become metadata.
    """

    def __init__(
        self,
        *,
        stream: str = "key",
        type: str = "header:eventType",
        version: str | None = None,
        id: str | None = "header:id",
    ) -> None:
        kinds = ("header", "envelope", "payload")
        self._stream = field_path(self, "stream", stream, ("key", *kinds))
        self._type = field_path(self, "type", type, (*kinds, "topic"))
        self._version = optional_field_path(self, "version", version, kinds)
        self._id = optional_field_path(self, "id", id, kinds)
        paths = [p for p in (self._stream, self._type, self._version, self._id) if p is not None]
        self._reader = PayloadReader(paths)
        self._used_headers = frozenset(p.name for p in paths if p.kind == "header")
        self._used_fields = frozenset(p.name for p in paths if p.kind == "envelope")
        self.has_versions, self.has_ids = version is not None, id is not None

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        message = self._message(record)
        type_name, id = scalar_at(message, self._type), scalar_at(message, self._id)
        if type_name is None:
            raise self._no_type(record)
        return Decoded(
            stream=text_at(message, self._stream),
            type=str(type_name),
            data=message.payload.document,
            version=scalar_at(message, self._version),
            id=None if id is None else str(id),
            metadata=self._metadata(message),
        )

    def stream_of(self, record: Record) -> str | None:
        """The stream; where it can't be read, the key."""
        return first_stream(record, self._stream_in, _plain_key)

    def _stream_in(self, record: Record) -> str:
        if self._stream.kind in ("envelope", "payload"):
            return text_at(self._message(record), self._stream)
        return text_at(_Message(record, Payload("null", None, {}), {}), self._stream)

    def _message(self, record: Record) -> _Message:
        value: bytes | msgspec.Raw = _without_schema(record.value or b"")
        fields: dict[str, msgspec.Raw] = {}
        if self._used_fields:
            try:
                fields = _object(value)
                value = fields.pop("payload")
            except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError):
                raise undecodable(
                    record,
                    "its value is not an object with a field 'payload', as it is where fields are "
                    "placed in the envelope; look at table.fields.additional.placement of the "
                    f"connector, or {OTHER}",
                ) from None
        payload = self._reader.read(record, _payload(record, bytes(value)))
        return _Message(record, payload, fields)

    def _metadata(self, message: _Message) -> str:
        found: dict[str, Any] = {}
        for name, value in message.record.headers:
            is_used = name in self._used_headers or name.startswith(INTERNAL)
            if value is not None and not is_used:
                # A header that is not text, such as a binary trace, can't be metadata.
                with suppress(UnicodeDecodeError):
                    found[name] = _plain(value.decode())
        version = found.get(VERSION_KEY)
        if isinstance(version, str) and version.isdecimal() and len(version) < 10:
            # Headers are text, and this one is compared with numbers.
            found[VERSION_KEY] = int(version)
        for name, raw in message.fields.items():
            if name not in self._used_fields:
                found[name] = raw
        try:
            return _encode(found).decode() if found else "{}"
        except UnicodeError as error:
            raise undecodable(message.record, f"its fields are not UTF-8; {OTHER}") from error

    def _no_type(self, record: Record) -> Undecodable:
        hint = "look at table.fields.additional.placement of the connector"
        if self._type.kind in ("header", "envelope"):
            kind, name = self._type.kind, self._type.name
            hint += f", which may need COLUMN:{kind}:{name}"
        return undecodable(
            record,
            f"it has no type: nothing is at {str(self._type)!r}; {hint}, or say with type=… where "
            "the type is",
        )


class _Message(msgspec.Struct, frozen=True, gc=False):
    """A record with its payload, and the other fields of its envelope."""

    record: Record
    payload: Payload
    fields: dict[str, msgspec.Raw]

    def at(self, path: FieldPath) -> Found:
        match path.kind:
            case "key":
                return _plain_key(self.record)
            case "topic":
                return self.record.topic
            case "header":
                return _plain(header_text(self.record, path.name))
            case "envelope":
                return self.fields.get(path.name)
            case _:
                return self.payload.at(path)


class _Schema(msgspec.Struct, frozen=True):
    type: str


class _WithSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of Kafka Connect's JSON converter when schemas are on."""

    schema: _Schema | None
    payload: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
_with_schema = msgspec.json.Decoder(_WithSchema).decode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(str | int).decode


def _without_schema(value: bytes) -> bytes | msgspec.Raw:
    # A search before decoding: most values have no schema, and decoding is slow.
    if b'"schema"' not in value or b'"payload"' not in value:
        return value
    try:
        return _with_schema(value).payload
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value


def _payload(record: Record, value: bytes) -> str:
    """The payload's JSON: the value itself, or the text that it holds. Empty is null."""
    try:
        text = value.decode()
        if text.lstrip(" \t\r\n").startswith('"'):
            text = _decode_text(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise undecodable(record, f"its payload is not JSON: {error}; {OTHER}") from error
    return text if text and not text.isspace() else "null"


def _plain_key(record: Record) -> str | None:
    return _plain(key_text(record))


def _plain(text: str | None) -> str | None:
    """Text as it was before a converter turned it into JSON."""
    if text is None or not text.startswith(('"', "{")):
        return text
    try:
        if text.startswith("{"):
            return str(_scalar(_with_schema(text).payload))
        return _decode_text(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
