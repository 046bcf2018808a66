"""Values as SQLite stores them. Text sorts as the values do, Decimal excepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import methodcaller
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from holdfast.model.rows.column_values import ColumnKind
from holdfast.model.rows.row_type import Column, Key, TableSpec

TYPES = {
    "str": "TEXT",
    "int": "INTEGER",
    "float": "REAL",
    "bool": "INTEGER",
    "Decimal": "TEXT",
    "date": "TEXT",
    "datetime": "TEXT",
    "UUID": "TEXT",
    "bytes": "BLOB",
    "JSON": "TEXT",
}


def encode_key(table: TableSpec, key: Key) -> list[Any]:
    return [encode(table.columns[i], v) for i, v in zip(table.key_indexes, key, strict=True)]


ENCODERS: Mapping[ColumnKind, Callable[[Any], Any]] = {
    "bool": int,
    "Decimal": str,
    "UUID": str,
    "datetime": methodcaller("isoformat", timespec="microseconds"),
    "date": date.isoformat,
}
"""Encoders of the kinds whose values SQLite does not take as they are."""


def encode(column: Column, value: Any) -> Any:
    """A checked value as SQLite stores it."""
    encoder = ENCODERS.get(column.kind)
    return value if encoder is None or value is None else encoder(value)


def encode_all(column: Column, values: Iterable[Any]) -> Iterable[Any]:
    """Checked values of one column as SQLite stores them."""
    encoder = ENCODERS.get(column.kind)
    if encoder is None:
        return values
    if not column.optional:
        return _moments(values) if column.kind == "datetime" else map(encoder, values)
    return (None if value is None else encoder(value) for value in values)


def _moments(values: Iterable[datetime]) -> Iterable[str]:
    """Moments as `encode` writes them, made in one call, which is many times as fast.

    msgspec writes Z for UTC, and no fraction if it is zero.
    """
    for text in _texts(msgspec.json.encode([*values])):
        yield f"{text[:-1]}+00:00" if len(text) == _LONG else f"{text[:-1]}.000000+00:00"


_texts = msgspec.json.Decoder(list[str]).decode
_LONG = len("2026-01-01T00:00:00.000000Z")


def decode(column: Column, value: Any) -> Any:
    if value is None:
        return None
    match column.kind:
        case "bool":
            return bool(value)
        case "Decimal":
            return Decimal(value)
        case "UUID":
            return UUID(value)
        case "datetime":
            return datetime.fromisoformat(value)
        case "date":
            return date.fromisoformat(value)
        case "JSON":
            return msgspec.json.decode(value, type=column.annotation)
        case _:
            return value


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of our own statements, as the schema stores them."""
    return {key: v if type(v) in _AS_THEY_ARE else _plain(v) for key, v in params.items()}


_AS_THEY_ARE = frozenset((str, int, float, bytes, bool, NoneType))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is not UTC:
            value = value.astimezone(UTC)
        return value.isoformat(timespec="microseconds")
    return str(value) if isinstance(value, UUID) else value


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float) and math.isinf(value):
        return "9e999" if value > 0 else "-9e999"
    return repr(value)
