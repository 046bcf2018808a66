"""The envelope of CloudEvents, in both modes of their binding to Kafka."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.kafka.envelopes.field_path import (
    OTHER,
    FieldPath,
    Fields,
    Found,
    Payload,
    PayloadReader,
    first_stream,
    header_text,
    key_text,
    missing,
    optional_field_path,
    scalar_at,
    text_at,
)
from holdfast.kafka.record import Decoded, Record, parse_time, undecodable
from holdfast.model.foreign_feed import Undecodable

PREFIX = "ce_"
"""Prefix of the headers that are attributes."""

STRUCTURED = "application/cloudevents"
"""Prefix of the content types of an event that is whole in the value."""

NOT_METADATA = frozenset(("specversion", "type", "time"))
"""Attributes that are not metadata: an event has fields for them, or has no use for them."""


class CloudEvents:
    """CloudEvents 1.x: whole in the value (structured, in JSON), or with their attributes in
    headers `ce_…` and the data in the value (binary); each record tells which.

    `type` is the event's type, and `time` is when it was recorded (the record's own time where it
    is missing). `id` is the event's id where it is a UUID; any other id counts together with
    `source`, because only both identify an event. All attributes but `specversion`, `type` and
    `time` become metadata. Data must be JSON; an event without data has null.

    `stream` is `attribute:NAME`, `key` or `payload:dotted.path` (in the data). By default it is the
    `subject`, which names the thing that the event is about; where an event has none, the key.
    `version` is `attribute:NAME` or `payload:dotted.path`; there is none by default. The extension
    `sequence` counts the events of a source: name it only if a source is one stream.
    """

    has_ids = True

    def __init__(self, *, stream: str | None = None, version: str | None = None) -> None:
        self._stream = optional_field_path(self, "stream", stream, ("attribute", "key", "payload"))
        self._version = optional_field_path(self, "version", version, ("attribute", "payload"))
        self._reader = PayloadReader([self._stream, self._version])
        self.has_versions = version is not None

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        event = _event(record)
        fields = self._with_data(event)
        id, source = _required(event, ID), _required(event, SOURCE)
        return Decoded(
            stream=self._stream_in(fields),
            type=_required(event, TYPE),
            data=fields.data.document,
            version=scalar_at(fields, self._version),
            id=_uuid(id) or f"{source} {id}",  # A URI holds no space.
            metadata=_metadata(event),
            recorded_at=_time(event),
        )

    def stream_of(self, record: Record) -> str | None:
        """The stream; where it can't be read, the key."""
        return first_stream(record, self._stream_alone, key_text)

    def _stream_alone(self, record: Record) -> str:
        """The stream of an event whose data may be broken."""
        event = _event(record)
        if self._stream is not None and self._stream.kind == "payload":
            return self._stream_in(self._with_data(event))
        return self._stream_in(event)

    def _stream_in(self, fields: Fields) -> str:
        if self._stream is not None:
            return text_at(fields, self._stream)
        subject = scalar_at(fields, SUBJECT)
        return text_at(fields, KEY) if subject is None else str(subject)

    def _with_data(self, event: _Event) -> _WithData:
        return _WithData(event.record, event, self._reader.read(event.record, _data(event)))


class _Event(msgspec.Struct, frozen=True, gc=False):
    """A record's attributes: text where they come from headers, else JSON that is not null."""

    record: Record
    attributes: dict[str, str | msgspec.Raw]
    data: msgspec.Raw | None
    data_base64: msgspec.Raw | None = None

    def at(self, path: FieldPath) -> Found:
        if path.kind == "key":
            return key_text(self.record)
        return self.data_base64 if path is DATA_BASE64 else self.attributes.get(path.name)


class _WithData(msgspec.Struct, frozen=True, gc=False):
    record: Record
    event: _Event
    data: Payload

    def at(self, path: FieldPath) -> Found:
        return self.data.at(path) if path.kind == "payload" else self.event.at(path)


def _attribute(name: str, *, setting: str | None = None) -> FieldPath:
    return FieldPath(setting or name, "attribute", (name,))


SPECVERSION, TYPE, SOURCE, ID, TIME, CONTENT_TYPE, DATA_BASE64 = map(
    _attribute,
    ("specversion", "type", "source", "id", "time", "datacontenttype", "data_base64"),
)
SUBJECT = _attribute("subject", setting="stream")
KEY = FieldPath("stream", "key")

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_is_json = re.compile(r"\s*[\w.+-]+/([\w.+-]+\+)?json\s*(;|$)", re.IGNORECASE).match
_is_known = re.compile(r"1\.\d+").fullmatch


def _event(record: Record) -> _Event:
    content_type = header_text(record, "content-type")
    if content_type is not None and content_type.lower().startswith(STRUCTURED):
        form = content_type.lower().removeprefix(STRUCTURED).partition(";")[0].strip()
        if form != "+json":
            raise undecodable(
                record, f"it is a CloudEvent in another format than JSON, or a batch; {OTHER}"
            )
        event = _structured(record)
    elif record.header(PREFIX + "specversion") is not None:
        event = _binary(record, content_type)
    else:
        # A producer may leave out the content type.
        event = _structured(record)
    if not _is_known(_required(event, SPECVERSION)):
        raise undecodable(record, f"its specversion is not 1.x; {OTHER}")
    return event


def _structured(record: Record) -> _Event:
    try:
        found = _object(record.value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _no_cloud_event(record, f"its value is not a JSON object ({error})") from error
    if "specversion" not in found:
        raise _no_cloud_event(record, "its value has no field 'specversion'")
    # An attribute that is null is missing; data that is null is a value.
    data, encoded = found.pop("data", None), found.pop("data_base64", None)
    attributes: dict[str, str | msgspec.Raw] = {
        name: raw for name, raw in found.items() if bytes(raw) != b"null"
    }
    is_set = encoded is not None and bytes(encoded) != b"null"
    return _Event(record, attributes, data, encoded if is_set else None)


def _binary(record: Record, content_type: str | None) -> _Event:
    attributes: dict[str, str | msgspec.Raw] = {}
    for name, value in dict(record.headers).items():
        if value is not None and name.startswith(PREFIX):
            try:
                attributes[name.removeprefix(PREFIX)] = value.decode()
            except UnicodeDecodeError as error:
                raise undecodable(record, f"its header {name!r} is not UTF-8; {OTHER}") from error
    if content_type is not None:
        attributes["datacontenttype"] = content_type
        if not _is_json(content_type):
            raise undecodable(
                record, f"its header 'content-type' says that its data is not JSON; {OTHER}"
            )
    return _Event(record, attributes, msgspec.Raw(record.value) if record.value else None)


def _no_cloud_event(record: Record, why: str) -> Undecodable:
    return undecodable(
        record, f"it is no CloudEvent: it has no header 'ce_specversion', and {why}; {OTHER}"
    )


def _required(event: _Event, path: FieldPath) -> str:
    text = text_at(event, path)
    if not text:
        raise missing(event.record, path)
    return text


def _data(event: _Event) -> str:
    """The data as JSON text; null where there is none."""
    try:
        if event.data_base64 is None:
            return "null" if event.data is None else bytes(event.data).decode()
        if event.data is not None:
            raise undecodable(event.record, f"it has both data and data_base64; {OTHER}")
        content_type = scalar_at(event, CONTENT_TYPE)
        if isinstance(content_type, str) and not _is_json(content_type):
            raise undecodable(
                event.record, f"its datacontenttype says that its data is not JSON; {OTHER}"
            )
        return base64.b64decode(text_at(event, DATA_BASE64), validate=True).decode()
    except ValueError as error:
        raise undecodable(event.record, f"its data is not UTF-8, or not base64; {OTHER}") from error


def _metadata(event: _Event) -> str:
    found = {name: at for name, at in event.attributes.items() if name not in NOT_METADATA}
    try:
        return _encode(found).decode()
    except UnicodeError as error:
        raise undecodable(event.record, f"its attributes are not UTF-8; {OTHER}") from error


def _time(event: _Event) -> datetime | None:
    text = scalar_at(event, TIME)
    moment = parse_time(text) if isinstance(text, str) else None
    if moment is None and text is not None:
        raise undecodable(event.record, f"its time is not one as RFC 3339 writes it; {OTHER}")
    return moment


def _uuid(id: str) -> UUID | None:
    try:
        return msgspec.convert(id, UUID)
    except msgspec.ValidationError:
        return None
