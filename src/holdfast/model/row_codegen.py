"""Functions made of a row's field names, as a dataclass makes its own.

Every event comes through them. The interpreter remembers where it has found an attribute that is
written out, which it does not for `getattr`, and no call and no tuple is needed for each.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.model.column_values import MAX_INT, MIN_INT, REFUSALS

if TYPE_CHECKING:
    from holdfast.model.row_type import Column


class Fold(Protocol):
    """Calls a handler with a row and an event; returns the row that is left, None if none is.

    Either all of it has happened, or the row is as it was and the error is raised. What the handler
    has changed is checked at once, so that its event is to blame for it, whatever the next one
    does, and becomes what would be loaded again: what a handler finds in a row does not depend on
    where a batch has ended.
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
        """Of a row that `is_new`, everything is checked, and nothing is put back.

        `result_of` says which row is left, None for its deletion, by the row and by what the
        handler returned, if that is not None.
        """


def make_fold(table: str, columns: Sequence[Column], key: Sequence[str]) -> Fold:
    """The function for the rows of one table."""
    names: dict[str, Any] = {
        "put": object.__setattr__,
        "encode": msgspec.json.encode,
        "refusals": REFUSALS,
        "wrong": partial(wrong, table, columns, key),
        "other_key": partial(other_key, table),
    }
    by_name = {column.name: index for index, column in enumerate(columns)}
    own_key = "".join(f"before_{by_name[part]}, " for part in key)
    kept, settled, undone = [], [], []
    for i, column in enumerate(columns):
        name, before = column.name, f"before_{i}"
        if column.kind == "JSON":  # A handler may change what is inside.
            names[f"decode_{i}"] = partial(_decode, column.annotation)
            kept.append(f"{before} = None if is_new else encode(row.{name})")
            undone.append(f"put(row, {name!r}, decode_{i}({before}))")
        else:
            kept.append(f"{before} = row.{name}")
            undone.append(f"put(row, {name!r}, {before})")
        if name in key:
            settled += [
                f"value = left.{name}",
                f"if value is not {before} and value != {before}: raise other_key(({own_key}))",
            ]
            continue
        names[f"settle_{i}"] = column.settle
        is_changed = f"(is_new or value is not {before})"
        if column.kind == "int":  # There are many, and most of them are as they should be.
            is_changed += f" and not (type(value) is int and {MIN_INT} <= value <= {MAX_INT})"
        settled += [
            f"value = left.{name}",
            f"if {is_changed}:",
            f"    try: after = settle_{i}(value)",
            "    except refusals: raise wrong(left) from None",
            f"    if after is not value: put(left, {name!r}, after)",
        ]
    lines = [
        "def fold(row, is_new, handler, event, result_of, /):",
        *_indented(1, kept),
        "    try:",
        "        result = handler(row, event)",
        "        left = row if result is None else result_of(row, result)",
        "        if left is not None:",
        *_indented(3, settled),
        "    except BaseException:",
        "        if not is_new:",
        *_indented(3, undone),
        "        raise",
        "    return left",
    ]
    _run("\n".join(lines), f"<fold of {table}>", names)
    fold: Fold = names["fold"]
    return fold


def _run(source: str, file: str, names: dict[str, Any]) -> None:
    """Runs code whose lines a stack trace can show."""
    exec(compile(source, file, "exec"), names)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file


def _indented(levels: int, lines: Iterable[str]) -> list[str]:
    return [f"{'    ' * levels}{line}" for line in lines]


def columns_taker(names: Sequence[str]) -> Callable[[Sequence[Any]], list[Sequence[Any]]]:
    """What takes the values of many rows, column by column, without a tuple for each row."""
    take: Callable[[Sequence[Any]], list[Sequence[Any]]] = eval(
        f"lambda rows: [{', '.join(f'[row.{name} for row in rows]' for name in names)}]", {}
    )
    return take


def wrong(table: str, columns: Sequence[Column], key: Sequence[str], row: Any) -> ValueError:
    """What is wrong with a row that can't be stored."""
    for column in columns:
        value = getattr(row, column.name)
        try:
            column.check(value)
        except REFUSALS as error:
            key_ = tuple(getattr(row, name) for name in key)
            return ValueError(
                f"table {table!r}, row {key_!r}: column {column.name!r} "
                f"({column.described()}) can't hold {value!r}: {error}"
            )
    raise AssertionError("a value was wrong, and no longer is")


def other_key(table: str, key: tuple[Any, ...]) -> ValueError:
    """What is wrong with a row that has another key than the one by which it was found."""
    return ValueError(
        f"a handler changed the key of row {key!r} of table {table!r}; return DELETE instead, and "
        "let key() choose the row"
    )


def _decode(annotation: Any, before: bytes) -> Any:
    return None if before == b"null" else msgspec.json.decode(before, type=annotation)
