"""Rows of a TableProjection in PostgreSQL's statements: each column's values are one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.rows.row_type import Column, TableSpec
from holdfast.sql.database import quote
from holdfast.sql.postgres.column_types import TYPES


def loading(table: TableSpec) -> str:
    """Loads rows by their keys, given by `%b`."""
    columns = ", ".join(f"t.{_name(c.name)}" for c in table.columns)
    return (
        f'SELECT {columns}, t."{table.guard}" FROM {_name(table.name)} AS t '
        f"JOIN {_unnested(map(_array, _key(table)))} "
        f"AS k ({', '.join(map(_name, table.key))}) "
        f"ON {' AND '.join(f't.{_name(n)} = k.{_name(n)}' for n in table.key)}"
    )


def finding_any(table: TableSpec) -> str:
    """Tells whether there is a row at all."""
    return f"SELECT EXISTS (SELECT FROM {_name(table.name)})"


def writing(table: TableSpec) -> str:
    """Writes rows, given by `%b`, unless the table has them at a later position."""
    return _writing(table, [*map(_array, table.columns), "%b::bigint[]"])


def writing_with(table: TableSpec, statement: str) -> str:
    """A statement that changes a row and returns it, and writes rows if it has found that row.

    It returns one more column, to be ignored. If not all rows are written, the statement divides by
    zero, which undoes all of it.
    """
    values = [_array(column, f"%(row_{n})b") for n, column in enumerate(table.columns)]
    written = _writing(
        table, [*values, "%(row_guard)b::bigint[]"], "WHERE EXISTS (SELECT FROM holdfast_moved)"
    )
    return (
        f"WITH holdfast_moved AS ({statement}), holdfast_written AS ({written} RETURNING 1) "
        "SELECT *, 1 / CASE WHEN (SELECT count(*) FROM holdfast_written) = %(row_count)s "
        "THEN 1 ELSE 0 END FROM holdfast_moved"
    )


def deleting(table: TableSpec) -> str:
    """Deletes rows by their keys, given by `%b`."""
    names = ", ".join(map(_name, table.key))
    return (
        f"DELETE FROM {_name(table.name)} WHERE ({names}) IN "
        f"(SELECT * FROM {_unnested(map(_array, _key(table)))})"
    )


def _writing(table: TableSpec, values: Sequence[str], where: str = "") -> str:
    names = [*(column.name for column in table.columns), table.guard]
    rest = [name for name in names if name not in table.key]
    return (
        f"INSERT INTO {_name(table.name)} AS t ({', '.join(map(_name, names))}) "
        f"SELECT * FROM {_unnested(values)} {where} "
        f"ON CONFLICT ({', '.join(map(_name, table.key))}) DO UPDATE SET "
        + ", ".join(f"{_name(name)} = excluded.{_name(name)}" for name in rest)
        + f' WHERE t."{table.guard}" {table.guarded} excluded."{table.guard}"'
    )


def _unnested(arrays: Iterable[str]) -> str:
    """The rows of some arrays. With its schema's name, `unnest` takes one array at a time."""
    return f"ROWS FROM ({', '.join(f'pg_catalog.unnest({array})' for array in arrays)})"


def _key(table: TableSpec) -> list[Column]:
    return [table.columns[i] for i in table.key_indexes]


def _name(name: str) -> str:
    """An identifier, quoted for a statement with parameters."""
    return quote(name).replace("%", "%%")


def _array(column: Column, parameter: str = "%b") -> str:
    """A parameter that takes a list of the column's values."""
    if column.kind == "JSON":
        return f"{parameter}::text[]::jsonb[]"
    return f"{parameter}::{TYPES[column.kind]}[]"
