"""The rows that a TableProjection has in memory: those of its batch, and some of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.column_values import ColumnKind
from holdfast.model.event import RawEvent
from holdfast.model.row_type import Key, TableSpec
from holdfast.runtime.caches import drop_oldest
from holdfast.runtime.limits import RuntimeLimits

Name = str | Key
"""What rows are known by: the stream where that is the key, else the key."""


class CachedRow(msgspec.Struct, gc=False):
    """`row` None: the table has no such row. `position`: the last event it has seen, by order.

    `base`: the same as it is stored, which nobody else may have changed. `is_changed`: it is to be
    written. `size`: what was long in it when it was loaded, or written last. A row never refers to
    its CachedRow, so these are in no cycle, and the garbage collector can pass over them.
    """

    key: Key
    row: Any | None
    position: int
    stored: bool
    base: int = 0
    is_changed: bool = False
    size: int = 0


class RowCache:
    """Rows by what they are known by, in the order in which they came."""

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
        """Whether it is time to write what was changed."""
        if len(self.changed) >= self._limits.changed_rows:
            return True
        return self._bytes > self._limits.changed_bytes and len(self.rows) > self._limits.least_rows

    @property
    def most_loaded(self) -> int | None:
        """How many rows may be loaded at once; None: any number."""
        if not self._long:
            return None
        if not self._held_bytes:
            return self._limits.first_loaded_rows
        # Rows that are loaded ahead must not be what fills a batch.
        room = min(self._limits.loaded_bytes, (self._limits.changed_bytes - self._bytes) // 2)
        return max(1, room * len(self.rows) // self._held_bytes)

    @property
    def _bytes(self) -> int:
        """What rows hold, as far as it is known, and what they may have got since."""
        return self._held_bytes + self._added_bytes

    def expect(self, events: Iterable[RawEvent]) -> None:
        """What rows may get from these: they can hold more than they did, and nobody has looked."""
        if self._long:
            self._added_bytes += sum(len(event.data) for event in events)

    def put(self, name: Name, cached: CachedRow, values: Sequence[Any] = ()) -> None:
        """A row as it is stored, with these values, or one that is not there."""
        if values:
            cached.size = sum(length(values[i]) for i, length in self._long)
            self._held_bytes += cached.size
        self.rows[name] = cached

    def writing(self, written: Sequence[CachedRow], columns: Sequence[Sequence[Any]]) -> None:
        """These rows are about to be written, with these values, in which JSON is text."""
        if not self._long:
            return
        sizes = [0] * len(written)
        for index, _ in self._long:
            sizes = [s + len(v or "") for s, v in zip(sizes, columns[index], strict=True)]
        for cached, size in zip(written, sizes, strict=True):
            cached.size = size

    def committed(self) -> None:
        """What was changed is stored; of all rows, the latest stay."""
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
"""The kinds of columns whose values may be of any length."""
