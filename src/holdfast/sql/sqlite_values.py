"""Values as SQLite stores them. Text sorts as the values do, Decimal excepted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.table import Column, Key, TableSpec

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


def encode(column: Column, value: Any) -> Any:
    """A checked value as SQLite stores it. Text sorts as the values do, Decimal excepted."""
    if value is None:
        return None
    match column.kind:
        case "bool":
            return int(value)
        case "Decimal" | "UUID":
            return str(value)
        case "datetime":
            return value.isoformat(timespec="microseconds")
        case "date":
            return value.isoformat()
        case _:
            return value


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
