"""Field paths: where in a record the parts of an event are, as an envelope's settings say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from holdfast.errors import ConfigError
from holdfast.kafka.record import Record, stream_or_none, undecodable
from holdfast.model.foreign_feed import Undecodable

OTHER = "use the envelope that its producer writes, or a decode function"
"""Advice for a record that does not have the form of its envelope."""

FORMS = {
    "key": "'key'",
    "topic": "'topic'",
    "header": "'header:NAME'",
    "attribute": "'attribute:NAME'",
    "envelope": "'envelope:NAME'",
    "payload": "'payload:dotted.path'",
}
"""How a path of each kind is written."""

Found = msgspec.Raw | str | None
"""What is at a path: JSON, plain text, or nothing."""


class FieldPath(msgspec.Struct, frozen=True):
    """Where `setting` is: a kind of field, and a name or a dotted path within it."""

    setting: str
    kind: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}:{'.'.join(self.names)}" if self.names else self.kind

    @property
    def name(self) -> str:
        """The first name, which is the only one unless the path is dotted."""
        return self.names[0]


class Fields(Protocol):
    """A record whose fields an envelope can find."""

    @property
    def record(self) -> Record: ...

    def at(self, path: FieldPath) -> Found: ...


def field_path(envelope: object, setting: str, text: object, kinds: Iterable[str]) -> FieldPath:
    """The path that a setting's text means; raises ConfigError that lists the possible forms.

    Where `payload:dotted.path` is possible, so is `payload`, the whole payload.
    """
    found = _parsed(setting, text)
    if found is None or found.kind not in kinds:
        forms = ", ".join(FORMS[kind] for kind in kinds)
        raise ConfigError(
            f"{type(envelope).__name__}({setting}={text!r}): this is not a field path; "
            f"possible are {forms}"
        )
    return found


def optional_field_path(
    envelope: object, setting: str, text: object, kinds: Iterable[str]
) -> FieldPath | None:
    """The same for a setting that may be None: the field never exists."""
    return None if text is None else field_path(envelope, setting, text, kinds)


def text_at(fields: Fields, path: FieldPath) -> str:
    """The text or number at a path, as text; raises Undecodable if nothing is there."""
    value = scalar_at(fields, path)
    if value is None:
        raise missing(fields.record, path)
    return value if isinstance(value, str) else str(value)


def scalar_at(fields: Fields, path: FieldPath | None) -> str | int | None:
    """The text or number at a path; raises Undecodable if something else is there."""
    if path is None:
        return None
    found = fields.at(path)
    if found is None or isinstance(found, str):
        return found
    try:
        value: str | int | None = _scalar(found)
        return value
    except (msgspec.DecodeError, UnicodeError):
        raise undecodable(
            fields.record,
            f"{path.setting}, at {str(path)!r}, is neither text nor a whole number; {OTHER}",
        ) from None


def missing(record: Record, path: FieldPath) -> Undecodable:
    """The error for a record without a required field."""
    return undecodable(record, f"it has no {path.setting}: nothing is at {str(path)!r}; {OTHER}")


class PayloadReader:
    """Finds the fields that some paths name in a JSON object, without decoding the rest."""

    def __init__(self, paths: Iterable[FieldPath | None]) -> None:
        inside = (path for path in paths if path is not None and path.kind == "payload")
        firsts = sorted({path.name for path in inside if path.names})
        self._attributes = {name: f"field_{number}" for number, name in enumerate(firsts)}
        struct = msgspec.defstruct(
            "Payload",
            [(attribute, msgspec.Raw, msgspec.Raw()) for attribute in self._attributes.values()],
            rename={attribute: name for name, attribute in self._attributes.items()},
            gc=False,
        )
        self._decode = msgspec.json.Decoder(struct).decode

    def read(self, record: Record, document: bytes | str) -> Payload:
        """One payload; raises Undecodable if a path leads into it, and it is no object."""
        if not self._attributes:
            return Payload(document, None, self._attributes)
        try:
            return Payload(document, self._decode(document), self._attributes)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise undecodable(
                record, f"its payload is not a JSON object: {error}; {OTHER}"
            ) from error


class Payload(msgspec.Struct, frozen=True, gc=False):
    """A payload, with the fields that its reader has found."""

    document: bytes | str
    fields: Any
    attributes: dict[str, str]

    def at(self, path: FieldPath) -> msgspec.Raw | None:
        """The field at a path, or the whole payload; None where there is none."""
        if not path.names:
            return msgspec.Raw(self.document)
        raw: msgspec.Raw = getattr(self.fields, self.attributes[path.name])
        for name in path.names[1:]:
            try:
                raw = _object(raw).get(name, _NOTHING)
            except (msgspec.DecodeError, UnicodeError):
                return None
        return raw if len(raw) else None


def header_text(record: Record, name: str) -> str | None:
    """A header as text; raises Undecodable if it is not UTF-8."""
    value = record.header(name)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        raise undecodable(record, f"its header {name!r} is not UTF-8; {OTHER}") from error


def key_text(record: Record) -> str | None:
    """The key as text; raises Undecodable if it is not UTF-8."""
    try:
        return None if record.key is None else record.key.decode()
    except UnicodeDecodeError as error:
        raise undecodable(record, f"its key is not UTF-8; {OTHER}") from error


def first_stream(record: Record, *finders: Callable[[Record], str | None]) -> str | None:
    """What the first finder that succeeds returns, if it can be a stream's name.

    The last finder reads the key: Kafka keeps order by key, so it is the next best lane.
    """
    for find in finders:
        try:
            name = stream_or_none(find(record))
        except Undecodable:
            continue
        if name is not None:
            return name
    return None


_NOTHING = msgspec.Raw()
_scalar = msgspec.json.Decoder(str | int | None).decode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _parsed(setting: str, text: object) -> FieldPath | None:
    if not isinstance(text, str):
        return None
    kind, colon, name = text.partition(":")
    if not colon:
        return FieldPath(setting, kind) if kind in ("key", "topic", "payload") else None
    names = tuple(name.split(".")) if kind == "payload" else (name,)
    if kind in ("key", "topic") or not all(names):
        return None
    if kind == "payload" and any(c in '"\\' or ord(c) < 32 for c in name):
        return None
    return FieldPath(setting, kind, names)
