"""What a value silently loses when it is encoded as JSON and decoded again."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

_WHOLE = frozenset({int, float, bool, bytes, Decimal, date, datetime, UUID})
"""Types that a value is decoded to only if it was one of them."""

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""The escape of a NUL, but not an escaped backslash before u0000."""

_BYTES = (bytes, bytearray, memoryview)
_SETS = (set, frozenset)
_LISTS = (list, tuple, set, frozenset)
_BARE = (list, tuple, set, frozenset, dict)
"""Types that hold anything when they have no parameters."""


def loss(value: Any, back: Any, *, numbers_only: bool = False) -> str | None:
    """The first loss between `value` and what it was decoded to, with its path; None if none.

    NaN and infinity become None. Where any type is allowed, bytes become text, sets become lists,
    and other keys become text. With `numbers_only` only NaN and infinity are looked for.
    """
    try:
        return _loss(value, back, "$", numbers_only)
    except RecursionError:
        return "it is nested too deep"


def contains_nul(text: str) -> bool:
    """Whether a text in this JSON has a NUL character, which PostgreSQL can't hold as text."""
    return "\\u0000" in text and _NUL.search(text) is not None


def holds_anything(annotation: Any) -> bool:
    """Whether a value of this type may have parts of any type."""
    return _holds_anything(annotation, set())


def _loss(value: Any, back: Any, path: str, numbers_only: bool) -> str | None:
    cls: Any = type(back)
    if back is None:
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value} at `{path}` has no place in JSON"
    elif cls is str:
        if not numbers_only and isinstance(value, _BYTES):
            return f"{type(value).__name__} at `{path}` is not JSON; use text"
    elif cls in _WHOLE:
        return None
    elif cls is dict:
        return _loss_of_mapping(value, back, path, numbers_only)
    elif isinstance(back, _SETS):
        if None in back:
            return _first_loss(((path, item, None) for item in value), numbers_only)
    elif isinstance(back, _LISTS):
        if not numbers_only and isinstance(value, _SETS):
            return f"{type(value).__name__} at `{path}` is not JSON; use a list"
        if isinstance(value, _LISTS):
            pairs = enumerate(zip(value, back, strict=False))
            return _first_loss(((f"{path}[{i}]", a, b) for i, (a, b) in pairs), numbers_only)
    else:
        names = _fields(cls)
        if extra := getattr(back, "__pydantic_extra__", None):
            names = (*names, *extra)
        fields = ((f"{path}.{n}", getattr(value, n, None), getattr(back, n, None)) for n in names)
        return _first_loss(fields, numbers_only)
    return None


def _first_loss(items: typing.Iterable[tuple[str, Any, Any]], numbers_only: bool) -> str | None:
    for path, item, item_back in items:
        lost = _loss(item, item_back, path, numbers_only)
        if lost is not None:
            return lost
    return None


def _loss_of_mapping(
    value: Any, back: Mapping[Any, Any], path: str, numbers_only: bool
) -> str | None:
    if not isinstance(value, Mapping):
        fields = ((f"{path}.{name}", getattr(value, name, None), back[name]) for name in back)
        return _first_loss(fields, numbers_only)
    if not numbers_only:
        for key, key_back in zip(value, back, strict=False):
            if isinstance(key_back, str) and not isinstance(key, str):
                return f"key {key!r} at `{path}` is not a str"
    pairs = zip(value.items(), back.values(), strict=False)
    return _first_loss(((f"{path}.{key}", item, b) for (key, item), b in pairs), numbers_only)


@lru_cache(maxsize=1_000)
def _fields(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass, a Struct or a pydantic model; none of other types."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    model_fields = getattr(cls, "__pydantic_fields__", {})
    return tuple(name for name, field in model_fields.items() if not field.exclude)


def _holds_anything(annotation: Any, seen: set[Any]) -> bool:
    if annotation is Any or isinstance(annotation, typing.TypeVar) or annotation in _BARE:
        return True
    parts = list(typing.get_args(annotation))
    cls = typing.get_origin(annotation) or annotation
    if getattr(cls, "model_config", {}).get("extra") == "allow":
        return True
    if isinstance(cls, type) and cls not in seen and cls.__module__ != "builtins":
        seen.add(cls)
        try:
            parts += typing.get_type_hints(cls).values()
        except Exception:  # Some annotations only the class's decoder can resolve.
            return True
    return any(_holds_anything(part, seen) for part in parts)
