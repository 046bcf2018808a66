"""CloudEvents, as their binding to Kafka lays them down."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from typing import Any
from uuid import UUID

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
    scalar,
)
from holdfast.kafka.record import Decoded, Record, parse_time, undecodable
from holdfast.model.foreign_feed import Undecodable

PREFIX = "ce_"
"""So begins the header of an attribute."""

STRUCTURED = "application/cloudevents"
"""So begins the content type of an event that is whole in the value."""

NOT_METADATA = frozenset(("specversion", "type", "time"))
"""What an event has a place for already, or nobody asks for."""


class CloudEvents:
    """CloudEvents 1.x: whole in the value (structured, in JSON), or with their attributes in
    headers `ce_…` and the data in the value (binary); each record tells which.

    `type` is the event's type, `time` is when it was recorded (the record's own time where it is
    missing), and `id` its id where it is a UUID; any other id counts together with `source`, as
    only both name an event. All attributes but those for which an event has a place become
    metadata. Data must be JSON; an event without any has null.

    `stream` is `attribute:NAME`, `key` or `payload:dotted.path` (in the data). By default it is the
    `subject`, which names the thing that the event is about; where an event has none, the key.
    `version` is `attribute:NAME` or `payload:dotted.path`; there is none by default. The extension
    `sequence` counts the events of a source: name it only if a source is one stream.
    """

    has_ids = True

    def __init__(self, *, stream: str | None = None, version: str | None = None) -> None:
        self._stream = optional_place_of(self, "stream", stream, ("attribute", "key", "payload"))
        self._version = optional_place_of(self, "version", version, ("attribute", "payload"))
        self._parts = Parts([self._stream, self._version])
        self.has_versions = version is not None

    def decode(self, record: Record) -> Decoded:
        """What a record says; raises Undecodable."""
        event = _event(record)
        data = _data(record, event)
        parts = self._parts.of(record, data) if self._parts.are_needed else None
        id, source = _needed(record, event, ID), _needed(record, event, SOURCE)
        version = None
        if self._version is not None:
            found = self._at(self._version, record, event, parts)
            version = scalar(record, self._version, found)
        return Decoded(
            stream=self._stream_in(record, event, parts),
            type=_needed(record, event, TYPE),
            data=data,
            version=version,
            id=_uuid(id) or f"{source} {id}",  # A URI holds no space.
            metadata=_metadata(record, event),
            recorded_at=_time(record, event),
        )

    def stream_of(self, record: Record) -> str | None:
        """The stream; where its place can't be read, the key."""
        return first_stream(record, self._stream_alone, key_text)

    def _stream_alone(self, record: Record) -> str:
        event, parts = _event(record), None
        if self._stream is not None and self._stream.kind == "payload":
            parts = self._parts.of(record, _data(record, event))
        return self._stream_in(record, event, parts)

    def _stream_in(self, record: Record, event: _Event, parts: Any) -> str:
        if self._stream is not None:
            return needed(record, self._stream, self._at(self._stream, record, event, parts))
        subject = scalar(record, SUBJECT, event.attributes.get("subject"))
        return needed(record, KEY, key_text(record)) if subject is None else str(subject)

    def _at(self, place: Place, record: Record, event: _Event, parts: Any) -> Found:
        if place.kind == "attribute":
            return event.attributes.get(place.name)
        if place.kind == "key":
            return key_text(record)
        return self._parts.at(place, parts) if place.names else msgspec.Raw(_data(record, event))


class _Event(msgspec.Struct, frozen=True, gc=False):
    """Attributes are text where they come from headers, else JSON that is not null."""

    attributes: dict[str, str | msgspec.Raw]
    data: msgspec.Raw | None
    data_base64: msgspec.Raw | None = None


def _attribute(name: str, *, setting: str | None = None) -> Place:
    return Place(setting or name, "attribute", (name,))


SPECVERSION, TYPE, SOURCE, ID, TIME, CONTENT_TYPE, DATA_BASE64 = map(
    _attribute,
    ("specversion", "type", "source", "id", "time", "datacontenttype", "data_base64"),
)
SUBJECT = _attribute("subject", setting="stream")
KEY = Place("stream", "key")

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
    if not _is_known(_needed(record, event, SPECVERSION)):
        raise undecodable(record, f"its specversion is not 1.x, which is all we know; {OTHER}")
    return event


def _structured(record: Record) -> _Event:
    try:
        found = _object(record.value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _no_cloud_event(record, f"its value is not a JSON object ({error})") from error
    if "specversion" not in found:
        raise _no_cloud_event(record, "its value has no field 'specversion'")
    # Null says that an attribute is missing; as data it is a value.
    data, encoded = found.pop("data", None), found.pop("data_base64", None)
    attributes: dict[str, str | msgspec.Raw] = {
        name: raw for name, raw in found.items() if bytes(raw) != b"null"
    }
    is_set = encoded is not None and bytes(encoded) != b"null"
    return _Event(attributes, data, encoded if is_set else None)


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
    return _Event(attributes, msgspec.Raw(record.value) if record.value else None)


def _no_cloud_event(record: Record, why: str) -> Undecodable:
    return undecodable(
        record, f"it is no CloudEvent: it has no header 'ce_specversion', and {why}; {OTHER}"
    )


def _needed(record: Record, event: _Event, place: Place) -> str:
    text = needed(record, place, event.attributes.get(place.name))
    if not text:
        raise missing(record, place)
    return text


def _data(record: Record, event: _Event) -> str:
    """The data as JSON text; null where there is none."""
    try:
        if event.data_base64 is None:
            return "null" if event.data is None else bytes(event.data).decode()
        if event.data is not None:
            raise undecodable(record, f"it has both data and data_base64; {OTHER}")
        content_type = scalar(record, CONTENT_TYPE, event.attributes.get("datacontenttype"))
        if isinstance(content_type, str) and not _is_json(content_type):
            raise undecodable(
                record, f"its datacontenttype says that its data is not JSON; {OTHER}"
            )
        text = needed(record, DATA_BASE64, event.data_base64)
        return base64.b64decode(text, validate=True).decode()
    except ValueError as error:
        raise undecodable(record, f"its data is not UTF-8, or not base64; {OTHER}") from error


def _metadata(record: Record, event: _Event) -> str:
    found = {name: at for name, at in event.attributes.items() if name not in NOT_METADATA}
    try:
        return _encode(found).decode()
    except UnicodeError as error:
        raise undecodable(record, f"its attributes are not UTF-8; {OTHER}") from error


def _time(record: Record, event: _Event) -> datetime | None:
    text = scalar(record, TIME, event.attributes.get("time"))
    moment = parse_time(text) if isinstance(text, str) else None
    if moment is None and text is not None:
        raise undecodable(record, f"its time is not one as RFC 3339 writes it; {OTHER}")
    return moment


def _uuid(id: str) -> UUID | None:
    try:
        return msgspec.convert(id, UUID)
    except msgspec.ValidationError:
        return None
