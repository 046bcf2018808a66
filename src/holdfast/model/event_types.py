"""Event types by name; encoding and decoding of payloads.

An encoded payload is decoded again before it is appended, so that every stored one can be decoded.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from holdfast.errors import ConfigError, PayloadError
from holdfast.model.event import Event, RawEvent, StoredEvent, check_type
from holdfast.model.json_fidelity import holds_anything, loss

C = TypeVar("C", bound=type)
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

decode_json: Callable[[str | bytes], Any] = msgspec.json.Decoder().decode
"""Decodes JSON text to plain values."""

VERSION_KEY = "schema_version"
"""Key of the payload's version in an event's metadata; absent means 1."""


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A payload ready to store."""

    type: str
    data: str
    schema_version: int


@dataclasses.dataclass(slots=True)
class _EventType:
    name: str
    version: int = 1
    cls: type | None = None
    decode: Callable[[str], Any] = decode_json
    convert: Callable[[Any], Any] = dataclasses.field(default=lambda data: data)
    encode: Callable[[Any], bytes] = msgspec.json.encode
    holds_anything: bool = False
    upcasters: dict[int, Upcaster] = dataclasses.field(default_factory=dict)


class EventTypes:
    """The registry from type name to class, with upcasters for payloads of older versions."""

    def __init__(self) -> None:
        self._by_name: dict[str, _EventType] = {}
        self._by_class: dict[type, _EventType] = {}
        self._direct: dict[str, Callable[[str], Any]] = {}
        """Decoders of the types whose payloads have only one version."""

    def register(self, cls: C, *, name: str | None = None, version: int = 1) -> C:
        """Stores instances of `cls` under `name` (its own name by default), payload `version`.

        Registering the same class under the same name again changes nothing.
        """
        name = check_type(cls.__name__ if name is None else name, error=ConfigError)
        if version < 1:
            raise ConfigError(f"event type {name!r}: version is {version}; versions start at 1")
        known = self._by_class.get(cls)
        if known is not None and (known.name, known.version) == (name, version):
            return cls
        if known is not None:
            raise ConfigError(
                f"class {cls.__qualname__} is already registered as event type {known.name!r}, "
                f"version {known.version}; register it once, before the projections that handle it"
            )
        entry = self._entry(name)
        if entry.cls is not None:
            raise ConfigError(
                f"event type {name!r} is already registered for {entry.cls.__module__}."
                f"{entry.cls.__qualname__}; give {cls.__module__}.{cls.__qualname__} another name"
            )
        entry.encode, entry.decode, entry.convert = _functions(cls)
        entry.cls, entry.version = cls, version
        entry.holds_anything = holds_anything(cls)
        self._by_class[cls] = entry
        self._renew(entry)
        return cls

    def upcaster(self, name: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Registers a function that turns a payload of `from_version` into the next version.

        It gets the payload as a dict and returns a dict. Upcasters run in a chain up to the
        version that the class is registered with.
        """

        def add(function: Upcaster) -> Upcaster:
            entry = self._entry(check_type(name, error=ConfigError))
            if from_version in entry.upcasters:
                raise ConfigError(
                    f"event type {name!r} already has an upcaster from version {from_version}"
                )
            entry.upcasters[from_version] = function
            self._renew(entry)
            return function

        return add

    def name_of(self, cls: type) -> str:
        """The type name of `cls`; registers the class under its own name if it is new."""
        if cls not in self._by_class:
            self.register(cls)
        return self._by_class[cls].name

    def encode(self, payload: Any, *, type_name: str | None = None) -> Encoded:
        """Turns a payload into JSON text; raises PayloadError unless it can be read back."""
        if isinstance(payload, Mapping):
            if type_name is None:
                raise PayloadError(
                    'a dict has no type name; append NewEvent({…}, type="SomethingHappened")'
                )
            entry = self._by_name.get(check_type(type_name)) or _EventType(type_name)
            what = f"payload of event type {type_name!r}"
            raw = _json(plain_json(payload, what=what), what)
        else:
            name = self.name_of(type(payload))
            entry = self._by_class[type(payload)]
            if type_name is not None and type_name != name:
                raise PayloadError(
                    f"{type(payload).__qualname__} is registered as event type {name!r}, "
                    f"the append says {type_name!r}; leave the type out"
                )
            try:
                raw = entry.encode(payload)
            except Exception as error:
                raise PayloadError(f"payload of event type {name!r}: {error}") from error
        text = _text(raw, entry.name)
        try:
            back = entry.decode(text)
        except Exception as error:
            raise PayloadError(
                f"payload of event type {entry.name!r} could not be read back: "
                f"{describe(error)}; nothing was appended"
            ) from error
        lost = None
        if type(payload) is entry.cls and (entry.holds_anything or "null" in text):
            lost = loss(payload, back, numbers_only=not entry.holds_anything)
        if lost is not None:
            raise PayloadError(f"payload of event type {entry.name!r}: {lost}")
        return Encoded(entry.name, text, entry.version)

    def decode(self, raw: RawEvent) -> Event[Any]:
        """Decodes an event's payload into its registered class, or into a dict."""
        decode = self._direct.get(raw.type)
        metadata: Mapping[str, Any] = {}  # A new dict, because a handler may change it.
        if decode is None:
            data, metadata = self._read(raw)
        else:
            try:
                data = decode(raw.data)
                if raw.metadata != "{}":
                    metadata = decode_json(raw.metadata)
            except Exception:
                data, metadata = self._read(raw)  # Raises a PayloadError that names the event.
        return StoredEvent(
            raw.position,
            raw.stream,
            raw.version,
            raw.id_text,  # type: ignore[arg-type]
            raw.type,
            data,
            metadata,
            raw.recorded_at,
        )

    def _read(self, raw: RawEvent) -> tuple[Any, Mapping[str, Any]]:
        """The payload and the metadata of an event of any type; raises PayloadError."""
        entry = self._by_name.get(raw.type)
        try:
            metadata = {} if raw.metadata == "{}" else decode_json(raw.metadata)
            if entry is None:
                return decode_json(raw.data), metadata
            if entry.version == 1 and not entry.upcasters:
                return entry.decode(raw.data), metadata
            return self._upcast(entry, raw, metadata), metadata
        except Exception as error:
            raise PayloadError(
                f"event {raw.id} ({raw.type!r}, stream {raw.stream!r} version {raw.version}, "
                f"position {raw.position}) can't be decoded: {describe(error)}"
            ) from error

    def upcast_types(self) -> set[str]:
        """Types that may have stored payloads of older versions."""
        return {e.name for e in self._by_name.values() if e.version > 1 or e.upcasters}

    def check(self) -> None:
        """Raises ConfigError if a chain of upcasters has a gap."""
        for entry in self._by_name.values():
            for version in entry.upcasters:
                wanted = range(version, entry.version)
                missing = [v for v in wanted if v not in entry.upcasters]
                if missing or version >= entry.version:
                    raise ConfigError(
                        f"event type {entry.name!r} is at version {entry.version}, and has an "
                        f"upcaster from version {version}, but "
                        + (f"none from {missing[0]}" if missing else "that is not an old version")
                        + "; register the class with its present version"
                    )

    def _renew(self, entry: _EventType) -> None:
        self._direct.pop(entry.name, None)
        if entry.version == 1 and not entry.upcasters:
            self._direct[entry.name] = entry.decode

    def _entry(self, name: str) -> _EventType:
        return self._by_name.setdefault(name, _EventType(name))

    def _upcast(self, entry: _EventType, raw: RawEvent, metadata: Mapping[str, Any]) -> Any:
        version = metadata.get(VERSION_KEY, 1)
        if version == entry.version:
            return entry.decode(raw.data)
        if not isinstance(version, int) or version > entry.version:
            raise ValueError(
                f"its payload has version {version!r}, this code knows up to {entry.version}"
            )
        data = decode_json(raw.data)
        while version < entry.version:
            upcaster = entry.upcasters.get(version)
            if upcaster is None:
                raise ValueError(f"no upcaster from version {version} is registered")
            data = upcaster(data)
            version += 1
        return entry.convert(data)


def encode_metadata(metadata: Mapping[str, Any] | None, *, schema_version: int) -> str:
    """Metadata as JSON text, with the payload's version if it is not 1.

    A version in `metadata` was copied from another event, and is left out.
    """
    plain = plain_json(metadata or {}, what="metadata")
    plain.pop(VERSION_KEY, None)
    if schema_version != 1:
        plain[VERSION_KEY] = schema_version
    return _text(_json(plain, "metadata"), "metadata")


def plain_json(value: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """The value in dicts, lists and plain values; raises PayloadError if JSON can't hold it."""
    try:
        plain: dict[str, Any] = _plain(value, "$", what)
    except RecursionError:
        raise PayloadError(f"{what} is nested too deep") from None
    return plain


def _json(plain: Mapping[str, Any], what: str) -> bytes:
    try:
        return msgspec.json.encode(plain)
    except ValueError as error:  # A number of more digits than Python writes.
        raise PayloadError(f"{what}: {error}") from error


def describe(error: BaseException) -> str:
    """An error in one line; pydantic's many lines become path and reason."""
    errors = getattr(error, "errors", None)
    if callable(errors) and type(error).__name__ == "ValidationError":
        return "; ".join(
            f"{item['msg']} - at `{'.'.join(['$', *map(str, item['loc'])])}`" for item in errors()
        )
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def is_event_class(cls: object) -> bool:
    """Whether instances of `cls` can be payloads."""
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct) or _is_pydantic(cls)
    )


def _functions(
    cls: type,
) -> tuple[Callable[[Any], bytes], Callable[[str], Any], Callable[[Any], Any]]:
    if not is_event_class(cls):
        raise ConfigError(
            f"{getattr(cls, '__qualname__', cls)!r} can't be an event: use a dataclass, a msgspec "
            "Struct, a pydantic model, or a dict with a type name"
        )
    if _is_pydantic(cls):
        model: Any = cls
        return _model_json, model.model_validate_json, model.model_validate
    try:
        decode: Callable[[str], Any] = msgspec.json.Decoder(cls).decode
    except TypeError as error:
        raise ConfigError(f"event class {cls.__qualname__}: {error}") from error
    return msgspec.json.encode, decode, lambda data: msgspec.convert(data, cls)


def payload_json(payload: Any) -> bytes:
    """A decoded payload as JSON."""
    return _model_json(payload) if _is_pydantic(type(payload)) else msgspec.json.encode(payload)


def _model_json(payload: Any) -> bytes:
    raw: bytes = payload.model_dump_json().encode()
    if b"NaN" in raw or b"Infinity" in raw:
        try:
            decode_json(raw)
        except msgspec.DecodeError as error:
            raise ValueError("NaN and infinity have no place in JSON") from error
    return raw


def _is_pydantic(cls: type) -> bool:
    """Whether `cls` is a pydantic model. Does not import pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise PayloadError(f"{what!r} holds text that is not valid Unicode") from error


def _plain(value: Any, path: str, what: str) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case str():
            return _plain_text(value, path, what)
        case float():
            if not math.isfinite(value):
                raise PayloadError(f"{what}: {value} at `{path}` has no place in JSON")
            return float(value)
        case list() | tuple():
            return [_plain(item, f"{path}[{index}]", what) for index, item in enumerate(value)]
        case Mapping():
            return {
                _plain_key(key, path, what): _plain(item, f"{path}.{key}", what)
                for key, item in value.items()
            }
        case _:
            hint = "use its str() or isoformat(), or a dataclass, which keeps types"
            if isinstance(value, UUID | bytes):
                hint = "use text, or a dataclass, which keeps types"
            raise PayloadError(f"{what}: {type(value).__name__} at `{path}` is not JSON; {hint}")


def _plain_key(key: Any, path: str, what: str) -> str:
    if not isinstance(key, str):
        raise PayloadError(f"{what}: key {key!r} at `{path}` is not a str")
    return _plain_text(key, path, what)


def _plain_text(text: str, path: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{what}: text at `{path}` is not valid Unicode") from error
    return str.__str__(text)
