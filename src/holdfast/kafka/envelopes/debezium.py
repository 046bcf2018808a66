"""What Debezium's outbox event router writes."""

from __future__ import annotations

from contextlib import suppress
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
    needed,
    optional_place_of,
    place_of,
    scalar,
)
from holdfast.kafka.record import Decoded, Record, undecodable
from holdfast.model.event_types import VERSION_KEY
from holdfast.model.foreign_feed import Undecodable

INTERNAL = "__debezium"
"""So begin headers that are about the connector, and not about the event."""


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
        self._stream = place_of(self, "stream", stream, ("key", *kinds))
        self._type = place_of(self, "type", type, (*kinds, "topic"))
        self._version = optional_place_of(self, "version", version, kinds)
        self._id = optional_place_of(self, "id", id, kinds)
        places = [p for p in (self._stream, self._type, self._version, self._id) if p is not None]
        self._parts = Parts(places)
        self._taken = {
            kind: frozenset(p.name for p in places if p.kind == kind)
            for kind in ("header", "envelope")
        }
        self._has_envelope = any(p.kind == "envelope" for p in places)
        self.has_versions, self.has_ids = version is not None, id is not None

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        message = self._message(record)
        type_name = self._at(self._type, record, message)
        if type_name is None:
            raise self._no_type(record)
        id = self._scalar(self._id, record, message)
        return Decoded(
            stream=needed(record, self._stream, self._at(self._stream, record, message)),
            type=needed(record, self._type, type_name),
            data=message.payload,
            version=self._scalar(self._version, record, message),
            id=None if id is None else str(id),
            metadata=self._metadata(record, message),
        )

    def stream_of(self, record: Record) -> str | None:
        """The stream; where its place can't be read, the key."""
        return first_stream(record, self._stream_in, _plain_key)

    def _stream_in(self, record: Record) -> str:
        in_value = self._stream.kind in ("envelope", "payload")
        message = self._message(record) if in_value else _Message("null", {}, None)
        return needed(record, self._stream, self._at(self._stream, record, message))

    def _message(self, record: Record) -> _Message:
        """The value, taken apart."""
        value: bytes | msgspec.Raw = _without_schema(record.value or b"")
        fields: dict[str, msgspec.Raw] = {}
        if self._has_envelope:
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
        payload = _payload(record, bytes(value))
        parts = self._parts.of(record, payload) if self._parts.are_needed else None
        return _Message(payload, fields, parts)

    def _at(self, place: Place, record: Record, message: _Message) -> Found:
        match place.kind:
            case "key":
                return _plain_key(record)
            case "topic":
                return record.topic
            case "header":
                return _plain(header_text(record, place.name))
            case "envelope":
                return message.fields.get(place.name)
            case _ if place.names:
                return self._parts.at(place, message.parts)
            case _:
                return msgspec.Raw(message.payload)

    def _scalar(self, place: Place | None, record: Record, message: _Message) -> str | int | None:
        if place is None:
            return None
        return scalar(record, place, self._at(place, record, message))

    def _metadata(self, record: Record, message: _Message) -> str:
        found: dict[str, Any] = {}
        taken = self._taken["header"]
        for name, value in record.headers:
            if value is not None and name not in taken and not name.startswith(INTERNAL):
                # What is no text, such as a trace in binary, can't be metadata.
                with suppress(UnicodeDecodeError):
                    found[name] = _plain(value.decode())
        version = found.get(VERSION_KEY)
        if isinstance(version, str) and version.isdecimal() and len(version) < 10:
            # A number in a header is text; this one is compared with numbers.
            found[VERSION_KEY] = int(version)
        for name, raw in message.fields.items():
            if name not in self._taken["envelope"]:
                found[name] = raw
        try:
            return _encode(found).decode() if found else "{}"
        except UnicodeError as error:
            raise undecodable(record, f"its fields are not UTF-8; {OTHER}") from error

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
    """A value's payload as JSON text, the envelope's other fields, the payload's parts."""

    payload: str
    fields: dict[str, msgspec.Raw]
    parts: Any


class _Schema(msgspec.Struct, frozen=True):
    type: str


class _WithSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How Kafka Connect's JSON converter writes a value when schemas are on."""

    schema: _Schema | None
    payload: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
_with_schema = msgspec.json.Decoder(_WithSchema).decode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_scalar = msgspec.json.Decoder(str | int).decode


def _without_schema(value: bytes) -> bytes | msgspec.Raw:
    # Looked for first, as most values have none, and decoding is dear.
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
    """Text as it was before a converter made JSON of it."""
    if text is None or not text.startswith(('"', "{")):
        return text
    try:
        if text.startswith("{"):
            return str(_scalar(_with_schema(text).payload))
        return _decode_text(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
