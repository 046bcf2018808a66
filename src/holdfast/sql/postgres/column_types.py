"""The type of PostgreSQL for each kind of column."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.rows.column_values import ColumnKind

TYPES: Mapping[ColumnKind, str] = {
    "str": "text",
    "int": "bigint",
    "float": "double precision",
    "bool": "boolean",
    "Decimal": "numeric",
    "date": "date",
    "datetime": "timestamptz",
    "UUID": "uuid",
    "bytes": "bytea",
    "JSON": "jsonb",
}
