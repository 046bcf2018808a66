"""SQLite's part of the statements of a SqlProjection."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.sql_spec import JOURNAL_COLUMNS, PayloadField
from holdfast.sql.range_dialect import RangeDialect, is_in, text

FEW_TYPES = 8
"""Maximum of values that are compared one by one: SQLite builds a tree for IN, which is slower."""


def _column(field: PayloadField) -> str:
    path = '$."' + field.key + '"'
    return f"json_extract(e.data, {text(path)})"


def _is_one_of(column: str, values: Sequence[str]) -> str:
    if len(values) > FEW_TYPES:
        return is_in(column, values)
    return f"CASE {column} {' '.join(f'WHEN {value} THEN true' for value in values)} END"


RANGE_DIALECT = RangeDialect(
    parameter=lambda name: f":{name}",
    escaped=lambda sql: sql,
    column=_column,
    is_one_of=_is_one_of,
    one="SELECT " + ", ".join(f":{name} AS {name}" for name in JOURNAL_COLUMNS),
    events=", ".join(f"e.{name}" for name in JOURNAL_COLUMNS),
)
