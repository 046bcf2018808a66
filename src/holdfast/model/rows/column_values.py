"""The kinds of column values, and the check of a value before it is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

from holdfast.model.json_fidelity import contains_nul, loss

ColumnKind = Literal[
    "str", "int", "float", "bool", "Decimal", "date", "datetime", "UUID", "bytes", "JSON"
]

CHECK_ERRORS = (TypeError, ValueError, OverflowError)
"""The errors that a check raises for a value that its column can't hold."""

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
"""Minimum and maximum of an int column."""

KINDS: dict[type, ColumnKind] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    Decimal: "Decimal",
    date: "date",
    datetime: "datetime",
    UUID: "UUID",
    bytes: "bytes",
}


def _exactly(cls: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"expected {cls.__name__}, got {type(value).__name__}")
        return value

    return check


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected str, got {type(value).__name__}")
    if "\0" in value:
        raise ValueError("text with a NUL character can't be stored")
    if not is_unicode(value):
        raise ValueError("text that is not valid Unicode can't be stored")
    return str.__str__(value)  # A plain str, even for an enum of strings.


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected int, got {type(value).__name__}")
    if not MIN_INT <= value <= MAX_INT:
        raise ValueError("more than 64 bits; use Decimal or str")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected float, got {type(value).__name__}")
    if math.isnan(value):
        raise ValueError("NaN can't be stored; use None")
    return float(value)


def _decimal(value: Any) -> Decimal:
    number: Decimal = _exactly(Decimal)(value)
    if not number.is_finite():
        raise ValueError(f"{number} can't be stored; use None")
    return number


def decimal_key(value: Any) -> Decimal:
    """The normal form of a number, so that equal numbers are one key: 1.50 is 1.5."""
    text = f"{_decimal(value):f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return Decimal("0" if text == "-0" else text)


def _datetime(value: Any) -> datetime:
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    moment: datetime = _exactly(datetime)(value)
    if moment.tzinfo is None:
        raise ValueError("a datetime needs a time zone, for example datetime.now(UTC)")
    return moment.astimezone(UTC)


def json_checks(annotation: Any) -> tuple[Callable[[Any], str], Callable[[Any], Any]]:
    """Two checks of JSON of this type: to the text to store, and to the value loaded from it."""
    decode = msgspec.json.Decoder(annotation).decode

    def checked(value: Any) -> tuple[str, Any]:
        text = msgspec.json.encode(value).decode()
        if contains_nul(text):
            raise ValueError("text with a NUL character can't be stored")
        loaded = in_jsonb_order(decode(text)) if "{" in text else decode(text)
        if "null" in text and (lost := loss(value, loaded, numbers_only=True)):
            raise ValueError(lost)
        return text, loaded

    return lambda value: checked(value)[0], lambda value: checked(value)[1]


def in_jsonb_order(value: Any) -> Any:
    """JSON with keys in the order of PostgreSQL's jsonb: short ones first.

    So a handler finds the same order in a cached row and in a loaded one.
    """
    if type(value) is list:
        return [in_jsonb_order(item) for item in value] if _has_containers(value) else value
    if type(value) is not dict:
        return value
    if all(type(key) is str and key.isascii() for key in value):
        keys = sorted(sorted(value), key=len)
    else:
        keys = sorted(value, key=_jsonb_rank)
    return {key: in_jsonb_order(value[key]) for key in keys}


def _has_containers(values: Sequence[Any]) -> bool:
    return not {dict, list}.isdisjoint(map(type, values))


def _jsonb_rank(key: Any) -> tuple[int, bytes]:
    text = key.encode() if isinstance(key, str) else msgspec.json.encode({key: 0})
    return len(text), text


CHECKS: dict[ColumnKind, Callable[[Any], Any]] = {
    "str": _str,
    "int": _int,
    "float": _float,
    "bool": _exactly(bool),
    "Decimal": _decimal,
    "date": _exactly(date),
    "datetime": _datetime,
    "UUID": _exactly(UUID),
    "bytes": _exactly(bytes),
}
"""The check of each kind but JSON, whose check depends on the annotation."""
