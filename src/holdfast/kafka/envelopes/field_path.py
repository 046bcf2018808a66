"""Places: where in a record something lies, as the settings of an envelope say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.errors import ConfigError
from holdfast.kafka.record import Record, stream_or_none, undecodable
from holdfast.model.foreign_feed import Undecodable

OTHER = "use the envelope that its producer writes, or a decode function"
"""What to do about a record that has another form than its envelope."""

FORMS = {
    "key": "'key'",
    "topic": "'topic'",
    "header": "'header:NAME'",
    "attribute": "'attribute:NAME'",
    "envelope": "'envelope:NAME'",
    "payload": "'payload:dotted.path'",
}
"""How a place of each kind is written."""

Found = msgspec.Raw | str | None
"""What is at a place: JSON, or plain text, or nothing."""


class Place(msgspec.Struct, frozen=True):
    """Where `setting` is found: a kind of place, and a name or a path there."""

    setting: str
    kind: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}:{'.'.join(self.names)}" if self.names else self.kind

    @property
    def name(self) -> str:
        """The name, where the place has just one."""
        return self.names[0]


def place_of(envelope: object, setting: str, text: object, kinds: Iterable[str]) -> Place:
    """The place that a setting's text means; raises ConfigError that says what is possible.

    `payload` alone, the whole of it, is possible where `payload:` is.
    """
    found = _parsed(setting, text)
    if found is None or found.kind not in kinds:
        forms = ", ".join(FORMS[kind] for kind in kinds)
        raise ConfigError(
            f"{type(envelope).__name__}({setting}={text!r}): this is no place; possible are {forms}"
        )
    return found


def optional_place_of(
    envelope: object, setting: str, text: object, kinds: Iterable[str]
) -> Place | None:
    """The same for what may be missing: None says that it always is."""
    return None if text is None else place_of(envelope, setting, text, kinds)


class Parts:
    """Finds what some places name in a JSON object, in one pass and without decoding the rest."""

    def __init__(self, places: Iterable[Place | None]) -> None:
        found = (place for place in places if place is not None and place.kind == "payload")
        firsts = sorted({place.name for place in found if place.names})
        self._fields = {name: f"field_{number}" for number, name in enumerate(firsts)}
        self.are_needed = bool(firsts)
        struct = msgspec.defstruct(
            "Parts",
            [(field, msgspec.Raw, msgspec.Raw()) for field in self._fields.values()],
            rename={field: name for name, field in self._fields.items()},
            gc=False,
        )
        self._decode = msgspec.json.Decoder(struct).decode

    def of(self, record: Record, document: bytes | str | msgspec.Raw) -> Any:
        """The parts of one document; raises Undecodable if it is no object."""
        try:
            return self._decode(document)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise undecodable(
                record, f"its payload is not a JSON object: {error}; {OTHER}"
            ) from error

    def at(self, place: Place, parts: Any) -> msgspec.Raw | None:
        """What is at a place; None where nothing is."""
        raw: msgspec.Raw = getattr(parts, self._fields[place.name])
        for name in place.names[1:]:
            try:
                raw = _object(raw).get(name, _NOTHING)
            except (msgspec.DecodeError, UnicodeError):
                return None
        return raw if len(raw) else None


def needed(record: Record, place: Place, found: Found) -> str:
    """What was found, as text; raises Undecodable if nothing was."""
    value = scalar(record, place, found)
    if value is None:
        raise missing(record, place)
    return value if isinstance(value, str) else str(value)


def scalar(record: Record, place: Place, found: Found) -> str | int | None:
    """What was found, as text or number; raises Undecodable if it is something else."""
    if found is None or isinstance(found, str):
        return found
    try:
        value: str | int | None = _scalar(found)
        return value
    except (msgspec.DecodeError, UnicodeError):
        raise undecodable(
            record,
            f"{place.setting}, at {str(place)!r}, is neither text nor a whole number; {OTHER}",
        ) from None


def missing(record: Record, place: Place) -> Undecodable:
    """The error for a record that has nothing at a place where something must be."""
    return undecodable(record, f"it has no {place.setting}: nothing is at {str(place)!r}; {OTHER}")


def header_text(record: Record, name: str) -> str | None:
    """A header as text; raises Undecodable if it is none."""
    value = record.header(name)
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        raise undecodable(record, f"its header {name!r} is not UTF-8; {OTHER}") from error


def key_text(record: Record) -> str | None:
    """The key as text; raises Undecodable if it is none."""
    try:
        return None if record.key is None else record.key.decode()
    except UnicodeDecodeError as error:
        raise undecodable(record, f"its key is not UTF-8; {OTHER}") from error


def first_stream(record: Record, *finders: Callable[[Record], str | None]) -> str | None:
    """The first that finds what can be a stream's name.

    The last is the key: Kafka keeps order by it, so it is the next best lane.
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


def _parsed(setting: str, text: object) -> Place | None:
    if not isinstance(text, str):
        return None
    kind, colon, name = text.partition(":")
    if not colon:
        return Place(setting, kind) if kind in ("key", "topic", "payload") else None
    names = tuple(name.split(".")) if kind == "payload" else (name,)
    if kind in ("key", "topic") or not all(names):
        return None
    if kind == "payload" and any(c in '"\\' or ord(c) < 32 for c in name):
        return None
    return Place(setting, kind, names)
