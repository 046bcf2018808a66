"""The rows of a TableProjection in memory: those of its batch, and some of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.event import RawEvent
from holdfast.model.rows.column_values import ColumnKind
from holdfast.model.rows.row_type import Key, TableSpec
from holdfast.runtime.caches import drop_oldest
from holdfast.runtime.limits import RuntimeLimits

Name = str | Key
"""The cache's key of a row: the stream if that is the row's key, else the row's key."""


class CachedRow(msgspec.Struct, gc=False):
    """`row` None: the table has no such row. `position`: its guard, by the last event it has seen.

    `base`: the stored guard. `is_changed`: it has to be written. `size`: the bytes of its long
    values when it was last loaded or written. A row never refers to its CachedRow, so there is no
    cycle, and the garbage collector need not track them.
    """

    key: Key
    row: Any | None
    position: int
    stored: bool
    base: int = 0
    is_changed: bool = False
    size: int = 0


class RowCache:
    """Rows by name, in the order in which they were put."""

    def __init__(self, table: TableSpec, limits: RuntimeLimits) -> None:
        self._limits = limits
        self.rows: dict[Name, CachedRow] = {}
        self.changed: list[CachedRow] = []
        self._long = [
            (index, _LENGTHS[column.kind])
            for index, column in enumerate(table.columns)
            if column.kind in _LENGTHS and column.name not in table.key
        ]
        self._held_bytes = self._added_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the changed rows have to be written now."""
        if len(self.changed) >= self._limits.changed_rows:
            return True
        return self._bytes > self._limits.changed_bytes and len(self.rows) > self._limits.least_rows

    @property
    def most_loaded(self) -> int | None:
        """Maximum number of rows to load at once; None: no limit."""
        if not self._long:
            return None
        if not self._held_bytes:
            return self._limits.first_loaded_rows
        # Rows that are loaded ahead must not fill a batch.
        room = min(self._limits.loaded_bytes, (self._limits.changed_bytes - self._bytes) // 2)
        return max(1, room * len(self.rows) // self._held_bytes)

    @property
    def _bytes(self) -> int:
        """The known size of the rows, and the most that events may have added since."""
        return self._held_bytes + self._added_bytes

    def expect(self, events: Iterable[RawEvent]) -> None:
        """Counts the payloads of events that are about to be applied: rows may grow by them."""
        if self._long:
            self._added_bytes += sum(len(event.data) for event in events)

    def put(self, name: Name, cached: CachedRow, values: Sequence[Any] = ()) -> None:
        """Adds a row with its stored values, or one that does not exist."""
        if values:
            cached.size = sum(length(values[i]) for i, length in self._long)
            self._held_bytes += cached.size
        self.rows[name] = cached

    def writing(self, written: Sequence[CachedRow], columns: Sequence[Sequence[Any]]) -> None:
        """Measures rows that are about to be written, by their values, in which JSON is text."""
        if not self._long:
            return
        sizes = [0] * len(written)
        for index, _ in self._long:
            sizes = [s + len(v or "") for s, v in zip(sizes, columns[index], strict=True)]
        for cached, size in zip(written, sizes, strict=True):
            cached.size = size

    def committed(self) -> None:
        """The changed rows are committed. Drops the oldest rows beyond the limits."""
        for cached in self.changed:
            cached.stored, cached.base = cached.row is not None, cached.position
            cached.is_changed = False
        self.changed.clear()
        self._added_bytes = 0
        if len(self.rows) > self._limits.cached_rows:
            drop_oldest(self.rows, most=self._limits.cached_rows)
        if self._long:
            self._drop_large()

    def _drop_large(self) -> None:
        while True:
            self._held_bytes = sum(cached.size for cached in self.rows.values())
            count = len(self.rows)
            if self._held_bytes <= self._limits.cached_bytes or count <= self._limits.least_rows:
                return
            fitting = count * self._limits.cached_bytes // self._held_bytes
            drop_oldest(self.rows, most=max(self._limits.least_rows, min(fitting, count - 1)))

    def forget(self) -> None:
        self.rows.clear()
        self.changed.clear()
        self._held_bytes = self._added_bytes = 0

    def drop(self, names: Iterable[Name]) -> None:
        for name in names:
            if (cached := self.rows.pop(name, None)) is not None:
                self._held_bytes -= cached.size


def _length(value: str | bytes | None) -> int:
    return 0 if value is None else len(value)


def _length_of_json(value: Any) -> int:
    return 0 if value is None else len(msgspec.json.encode(value))


_LENGTHS: Mapping[ColumnKind, Callable[[Any], int]] = {
    "str": _length,
    "bytes": _length,
    "JSON": _length_of_json,
}
"""The length of a value, by the kinds of columns whose values have no fixed length."""
