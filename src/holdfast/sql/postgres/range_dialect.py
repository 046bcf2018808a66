"""PostgreSQL's part of the statements of a SqlProjection."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.sql_spec import PayloadField
from holdfast.sql.postgres.column_types import TYPES
from holdfast.sql.range_dialect import RangeDialect, is_in, text


def _column(field: PayloadField) -> str:
    key = f"CAST({text(field.key)} AS text)".replace("%", "%%")
    if field.kind == "JSON":
        return f"e.data -> {key}"
    return f"CAST(e.data ->> {key} AS {TYPES[field.kind]})"


_JOURNAL_TYPES: Mapping[str, str] = {
    "position": "bigint",
    "stream": "text",
    "version": "bigint",
    "id": "uuid",
    "type": "text",
    "data": "json",
    "metadata": "json",
    "recorded_at": "timestamptz",
}

RANGE_DIALECT = RangeDialect(
    parameter=lambda name: f"%({name})s",
    escaped=lambda sql: sql.replace("%", "%%"),
    column=_column,
    is_one_of=is_in,
    # Without OFFSET, PostgreSQL casts the values before it evaluates WHERE.
    one="SELECT "
    + ", ".join(f"CAST(%({n})s AS {type_}) AS {n}" for n, type_ in _JOURNAL_TYPES.items())
    + " OFFSET 0",
    events="e.position, e.stream, e.version, CAST(e.id AS text), e.type, "
    "CAST(e.data AS text), CAST(e.metadata AS text), e.recorded_at",
)
