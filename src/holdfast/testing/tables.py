"""The rows of a projection, and how they differ from the expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.app import App
from holdfast.model.rows.row_type import GUARDS, Key, TableSpec
from holdfast.runtime.store.queue_items import QueueItem
from holdfast.sql.database import quote
from holdfast.sql.sqlite.column_values import decode

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Table:
    """A table's rows. `columns` names their values."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    @property
    def dicts(self) -> list[dict[str, Any]]:
        """The rows as dicts from column to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def expect(self, *rows: Sequence[Any] | Mapping[str, Any]) -> None:
        """Raises AssertionError unless the table has exactly these rows, in any order.

        A row is a tuple of all its values, or a dict. Columns that are missing in the dicts are not
        compared; all dicts must have the same columns.
        """
        found: list[Any] = self.rows
        wanted: list[Any] = [dict(row) if isinstance(row, Mapping) else tuple(row) for row in rows]
        if wanted and all(isinstance(row, dict) for row in wanted):
            names = [name for name in self.columns if name in wanted[0]]
            found = [{name: row[name] for name in names} for row in self.dicts]
        missing, unexpected = _difference(found, wanted)
        _raise_for(self.name, [], missing, unexpected)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a Projection. `queue` has the events that were parked or skipped."""

    _projection: str
    _tables: Mapping[str, Table]
    queue: Sequence[QueueItem] = ()

    def table(self, name: str) -> Table:
        """One of the tables that the projection declares."""
        if name not in self._tables:
            known = ", ".join(self._tables) or "none"
            raise LookupError(
                f"projection {self._projection!r} declares no table {name!r}; it has: {known}"
            )
        return self._tables[name]


class Rows(Generic[R]):
    """The rows of a TableProjection, in the order of their keys.

    `queue` has the events that were parked or skipped.
    """

    def __init__(self, spec: TableSpec, table: Table, queue: Sequence[QueueItem] = ()) -> None:
        self.queue = queue
        self._spec, self._columns = spec, spec.columns
        self.rows: list[R] = sorted(map(spec.row, table.rows), key=spec.key_of)

    def expect(self, *rows: R) -> None:
        """Raises AssertionError unless the table has exactly these rows, in any order."""
        for row in rows:
            if not isinstance(row, self._spec.row_type):
                wanted = self._spec.row_type.__name__
                raise TypeError(f"expect takes rows of type {wanted}, not {row!r}")
        unexpected = {self._key(row): row for row in self.rows}
        changed, missing = [], []
        for row in rows:
            found = unexpected.pop(self._key(row), None)
            if found is None:
                missing.append(row)
            elif differences := self._differences(found, row):
                changed.append(f"{self._shown(row)}: {differences}")
        _raise_for(self._spec.name, changed, missing, list(unexpected.values()))

    def _key(self, row: R) -> Key:
        return self._spec.check_key(self._spec.key_of(row))

    def _shown(self, row: R) -> str:
        key = self._spec.key_of(row)
        return repr(key[0]) if len(key) == 1 else repr(key)

    def _differences(self, found: R, wanted: R) -> str:
        pairs = [(c.name, getattr(found, c.name), getattr(wanted, c.name)) for c in self._columns]
        return "; ".join(f"{name} is {a!r}, expected {b!r}" for name, a, b in pairs if a != b)


def read_table(app: App, name: str, declared: str | TableSpec) -> Table:
    """All rows of a table of an app on SQLite."""
    with app._database.reading() as connection:
        cursor = connection.tx.connection.execute(f"SELECT * FROM {quote(name)}")
        columns = tuple(column[0] for column in cursor.description)
        rows = cursor.fetchall()
    if isinstance(declared, str):
        return Table(name, columns, rows)
    at = {column: index for index, column in enumerate(columns) if column not in GUARDS}
    return Table(
        name,
        tuple(column.name for column in declared.columns),
        [tuple(decode(c, row[at[c.name]]) for c in declared.columns) for row in rows],
    )


def _difference(found: Sequence[Any], wanted: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The missing and the unexpected rows, which need not be hashable."""
    missing, unexpected = [], list(found)
    for row in wanted:
        if row in unexpected:
            unexpected.remove(row)
        else:
            missing.append(row)
    return missing, unexpected


def _raise_for(
    name: str, changed: Sequence[str], missing: Sequence[Any], unexpected: Sequence[Any]
) -> None:
    lines = [
        *(f"  {line}" for line in changed),
        *(f"  missing:    {row!r}" for row in missing),
        *(f"  unexpected: {row!r}" for row in unexpected),
    ]
    if lines:
        raise AssertionError("\n".join([f"table {name!r} is not as expected", *lines]))
