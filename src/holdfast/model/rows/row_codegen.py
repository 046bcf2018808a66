"""Functions generated from a row's field names, as dataclasses generates its own.

Every event passes through them. The interpreter caches the lookup of an attribute that is written
out, which it does not for `getattr`, and needs no call and no tuple for each.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.model.rows.column_values import CHECK_ERRORS, MAX_INT, MIN_INT

if TYPE_CHECKING:
    from holdfast.model.rows.row_type import Column


class Fold(Protocol):
    """Calls a handler with a row and an event; returns the resulting row, None if it is deleted.

    If the call raises, the row is restored. Changed values are checked at once, so that the right
    event is blamed for a wrong one. They are replaced by what would be loaded from the database, so
    that a handler finds the same values wherever a batch has ended.
    """

    def __call__(
        self,
        row: Any,
        is_new: bool,
        handler: Callable[[Any, Any], Any],
        event: Any,
        result_of: Callable[[Any, Any], Any],
        /,
    ) -> Any:
        """All values of a new row are checked, and none is restored.

        `result_of(row, returned)` gives the resulting row if the handler returned something, None
        for a deletion.
        """


def make_fold(table: str, columns: Sequence[Column], key: Sequence[str]) -> Fold:
    """The Fold of one table."""
    names: dict[str, Any] = {
        "put": object.__setattr__,
        "encode": msgspec.json.encode,
        "check_errors": CHECK_ERRORS,
        "row_error": partial(row_error, table, columns, key),
        "key_changed": partial(key_changed, table),
    }
    by_name = {column.name: index for index, column in enumerate(columns)}
    own_key = "".join(f"before_{by_name[part]}, " for part in key)
    saved, checked, restored = [], [], []
    for i, column in enumerate(columns):
        name, before = column.name, f"before_{i}"
        if column.kind == "JSON":  # A handler may change it in place.
            names[f"decode_{i}"] = partial(_decode, column.annotation)
            saved.append(f"{before} = None if is_new else encode(row.{name})")
            restored.append(f"put(row, {name!r}, decode_{i}({before}))")
        else:
            saved.append(f"{before} = row.{name}")
            restored.append(f"put(row, {name!r}, {before})")
        if name in key:
            checked += [
                f"value = left.{name}",
                f"if value is not {before} and value != {before}: raise key_changed(({own_key}))",
            ]
            continue
        names[f"loaded_{i}"] = column.loaded
        is_changed = f"(is_new or value is not {before})"
        if column.kind == "int":  # The most frequent kind: checked without a call.
            is_changed += f" and not (type(value) is int and {MIN_INT} <= value <= {MAX_INT})"
        checked += [
            f"value = left.{name}",
            f"if {is_changed}:",
            f"    try: after = loaded_{i}(value)",
            "    except check_errors: raise row_error(left) from None",
            f"    if after is not value: put(left, {name!r}, after)",
        ]
    lines = [
        "def fold(row, is_new, handler, event, result_of, /):",
        *_indented(1, saved),
        "    try:",
        "        result = handler(row, event)",
        "        left = row if result is None else result_of(row, result)",
        "        if left is not None:",
        *_indented(3, checked),
        "    except BaseException:",
        "        if not is_new:",
        *_indented(3, restored),
        "        raise",
        "    return left",
    ]
    _run("\n".join(lines), f"<fold of {table}>", names)
    fold: Fold = names["fold"]
    return fold


def _run(source: str, file: str, names: dict[str, Any]) -> None:
    """Runs code, and registers its lines for stack traces."""
    exec(compile(source, file, "exec"), names)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file


def _indented(levels: int, lines: Iterable[str]) -> list[str]:
    return [f"{'    ' * levels}{line}" for line in lines]


def columns_taker(names: Sequence[str]) -> Callable[[Sequence[Any]], list[Sequence[Any]]]:
    """A function that returns the values of many rows column by column, without a tuple a row."""
    take: Callable[[Sequence[Any]], list[Sequence[Any]]] = eval(
        f"lambda rows: [{', '.join(f'[row.{name} for row in rows]' for name in names)}]", {}
    )
    return take


def row_error(table: str, columns: Sequence[Column], key: Sequence[str], row: Any) -> ValueError:
    """The error of a row that can't be stored, which names the column."""
    for column in columns:
        value = getattr(row, column.name)
        try:
            column.check(value)
        except CHECK_ERRORS as error:
            key_ = tuple(getattr(row, name) for name in key)
            return ValueError(
                f"table {table!r}, row {key_!r}: column {column.name!r} "
                f"({column.described()}) can't hold {value!r}: {error}"
            )
    raise AssertionError("a value failed its check, and now passes it")


def key_changed(table: str, key: tuple[Any, ...]) -> ValueError:
    """The error of a handler that has changed a row's key."""
    return ValueError(
        f"a handler changed the key of row {key!r} of table {table!r}; return DELETE instead, and "
        "let key() choose the row"
    )


def _decode(annotation: Any, before: bytes) -> Any:
    return None if before == b"null" else msgspec.json.decode(before, type=annotation)
