"""Many values of one column as a PostgreSQL array in its binary form.

The driver packs an array value by value. These functions pack the most common kinds all at once, in
the format of the server's array_send.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any

from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from holdfast.model.rows.column_values import ColumnKind
from holdfast.model.rows.row_type import TableSpec
from holdfast.runtime.store.transaction import RowChanges

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

INT8, TEXT, TIMESTAMPTZ = 20, 25, 1184
"""OIDs of types, which are the same on every server."""

_pack_head = struct.Struct(">iiIii").pack
_pack_length = struct.Struct(">i").pack


class Packed:
    """An array in binary form; the statement names its type."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class PackedDumper(Dumper):
    """Sends the bytes as they are."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> Buffer:
        return obj.data


def packed(kind: ColumnKind, values: Sequence[Any]) -> Packed | list[Any]:
    """Checked values as one parameter; a list where the driver has to pack them."""
    pack = _PACKERS.get(kind)
    if pack is None or not values or None in values:
        return list(values)
    return pack(values)


def row_arrays(table: TableSpec, rows: RowChanges) -> list[Any]:
    """Rows as row_statements.writing takes them."""
    kinds = [*(column.kind for column in table.columns), "int"]
    return [*map(packed, kinds, [*rows.columns, rows.positions])]


def named_arrays(table: TableSpec, rows: RowChanges) -> dict[str, Any]:
    """Rows as row_statements.writing_with takes them."""
    *columns, guards = row_arrays(table, rows)
    values = {f"row_{n}": column for n, column in enumerate(columns)}
    return {**values, "row_guard": guards, "row_count": len(rows.positions)}


def microseconds(moment: datetime) -> int:
    """A moment in the server's microseconds."""
    return (moment - EPOCH) // MICROSECOND


def _packed_ints(values: Sequence[int], type_: int = INT8) -> Packed:
    lengths_and_values = chain.from_iterable(zip(repeat(8), values, strict=False))
    body = struct.pack(">" + "iq" * len(values), *lengths_and_values)
    return Packed(_head(type_, len(values)) + body)


def _packed_texts(values: Sequence[str]) -> Packed:
    texts = [value.encode() for value in values]
    parts = chain.from_iterable(zip(map(_pack_length, map(len, texts)), texts, strict=True))
    return Packed(_head(TEXT, len(values)) + b"".join(parts))


def _packed_moments(values: Sequence[datetime]) -> Packed:
    return _packed_ints([*map(microseconds, values)], TIMESTAMPTZ)


def _head(type_: int, count: int) -> bytes:
    """One dimension, no nulls, counted from 1."""
    return _pack_head(1, 0, type_, count, 1)


_PACKERS: Mapping[ColumnKind, Callable[[Sequence[Any]], Packed]] = {
    "int": _packed_ints,
    "str": _packed_texts,
    "datetime": _packed_moments,
}
