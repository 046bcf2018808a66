"""Row types: a dataclass read as a table's columns."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from holdfast.errors import ConfigError
from holdfast.model.lane import UNKNOWN, lane_name
from holdfast.model.rows.column_values import (
    CHECK_ERRORS,
    CHECKS,
    KINDS,
    MAX_INT,
    MIN_INT,
    ColumnKind,
    decimal_key,
    is_unicode,
    json_checks,
)
from holdfast.model.rows.row_codegen import Fold, columns_taker, make_fold, row_error

Key = tuple[Any, ...]

_attributes: Callable[[Any], dict[str, Any]] = attrgetter("__dict__")

MAX_NAME_BYTES = 63
"""Maximum length of a name; PostgreSQL cuts longer ones silently."""

POSITION_COLUMN = "_position"
"""The position of the last event that changed the row."""

VERSION_COLUMN = "_version"
"""On feeds of other systems: the version of that event in its stream, which is the row's key."""

CHANGES_COLUMN = "_changes"
"""On feeds without versions: the number of changes of the row. Of two writers that change it at
once, the second finds its number taken."""

GUARDS = (POSITION_COLUMN, VERSION_COLUMN, CHANGES_COLUMN)
"""Every projected row has one of these columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    `check` returns the value to store, `loaded` the value that is loaded from it; both raise
    CHECK_ERRORS.
    """

    name: str
    kind: ColumnKind
    optional: bool
    annotation: Any
    default: Any
    check: Callable[[Any], Any]
    loaded: Callable[[Any], Any]

    def described(self) -> str:
        """The kind, and whether it is optional: existing rows depend on both."""
        return f"{self.kind} | None" if self.optional else self.kind


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table whose rows are instances of a dataclass."""

    name: str
    row_type: type
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_indexes: tuple[int, ...]
    take_columns: Callable[[Sequence[Any]], list[Sequence[Any]]]
    """The values of many rows, column by column."""
    fold: Fold
    """Calls a handler with a row."""
    guard: str = POSITION_COLUMN
    """The column of the last event that changed a row; no earlier event may change it."""

    @property
    def guarded(self) -> str:
        """How the stored guard has to compare with the new one."""
        return "<" if self.guard == CHANGES_COLUMN else "<="

    def new_row(self, key: Key) -> Any:
        """A row with this key, and defaults in the other fields."""
        return self.row_type(**dict(zip(self.key, key, strict=True)))

    def key_of(self, row: Any) -> Key:
        return tuple(getattr(row, name) for name in self.key)

    def values(self, row: Any) -> tuple[Any, ...]:
        """The row's checked values in column order; raises ValueError that names the column."""
        try:
            return tuple([column.check(getattr(row, column.name)) for column in self.columns])
        except CHECK_ERRORS:
            raise row_error(self.name, self.columns, self.key, row) from None

    def checked(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """The checked values of many rows, column by column."""
        try:
            columns = self.take_columns(rows)
        except AttributeError as error:
            raise ValueError(f"a row of table {self.name!r} has lost a field: {error}") from None
        self._check_attributes(rows)
        for index, column in enumerate(self.columns):
            values = columns[index]
            given = [v for v in values if v is not None] if column.optional else values
            if not (given and (passes := BULK_CHECKS.get(column.kind)) and passes(given)):
                try:
                    columns[index] = list(map(column.check, values))
                except CHECK_ERRORS:
                    for row in rows:
                        self.values(row)  # Raises an error that names the row.
                    raise
        return columns

    def _check_attributes(self, rows: Sequence[Any]) -> None:
        """Raises ValueError if a row has an attribute that is no field: it would be lost."""
        if not (rows and self.row_type.__dictoffset__):
            return  # It has slots.
        if max(map(len, map(_attributes, rows))) <= len(self.columns):
            return
        known = _attributes(self.new_row(self.key_of(rows[0]))).keys()
        for row in rows:
            for name in _attributes(row).keys() - known:
                if not hasattr(self.row_type, name):  # Such as a cached property.
                    like = difflib.get_close_matches(name, [c.name for c in self.columns], 1)
                    hint = f"; did you mean {like[0]!r}?" if like else ""
                    raise ValueError(
                        f"table {self.name!r}, row {self.key_of(row)!r}: a handler has set "
                        f"{name!r}, which is not a field of {self.row_type.__name__}{hint}"
                    )

    def row(self, values: Sequence[Any]) -> Any:
        """A row made of stored values in column order."""
        return self.row_type(**{c.name: v for c, v in zip(self.columns, values, strict=True)})

    def check_key(self, key: Key) -> Key:
        """The key as it is stored, so that equal keys are one row."""
        if len(key) != len(self.key):
            raise ValueError(f"key {key!r} has {len(key)} parts, the table's key is {self.key}")
        checked = []
        for name, index, part in zip(self.key, self.key_indexes, key, strict=True):
            try:
                checked.append(self.columns[index].check(part))
            except CHECK_ERRORS as error:
                raise type(error)(f"key {part!r} for field {name!r}: {error}") from error
        return tuple(checked)

    def definition(self, others: Mapping[str, str] | None = None) -> str:
        """What existing rows depend on, as JSON; `others`: the kinds of columns it doesn't know."""
        columns = {column.name: column.described() for column in self.columns}
        guard = {} if self.guard == POSITION_COLUMN else {"guard": self.guard}
        return json.dumps({"key": self.key, "columns": {**columns, **(others or {})}, **guard})


def table_of(
    row_type: type, *, name: str, key_fields: tuple[str, ...] = (), guard: str = POSITION_COLUMN
) -> TableSpec:
    """The table of a dataclass; the first field is the key unless `key_fields` names others."""
    where = f"row type {getattr(row_type, '__qualname__', row_type)!r}"
    if not (isinstance(row_type, type) and dataclasses.is_dataclass(row_type)):
        raise ConfigError(f"{where} of table {name!r} must be a dataclass")
    check_identifier(name, f"table name {name!r}")
    try:
        hints = typing.get_type_hints(row_type)
    except NameError as error:
        raise ConfigError(f"{where}: {error}; its annotations must be importable names") from error
    fields = [field for field in dataclasses.fields(row_type) if field.init]
    if not fields:
        raise ConfigError(f"{where} has no fields; its first field is the table's key")
    columns = tuple(_column(where, field, hints[field.name]) for field in fields)
    _check_columns(where, row_type, columns)
    by_name = {column.name: index for index, column in enumerate(columns)}
    key = key_fields or (columns[0].name,)
    for part in key:
        if part not in by_name:
            raise ConfigError(f"{where}: key_fields names {part!r}, which is not one of its fields")
        if key.count(part) > 1:
            raise ConfigError(f"{where}: key_fields names {part!r} twice")
        if columns[by_name[part]].optional or columns[by_name[part]].kind in ("JSON", "float"):
            raise ConfigError(
                f"{where}: key field {part!r} is {columns[by_name[part]].described()}; "
                "a key can't be optional, float or JSON"
            )
    for column in columns:
        if column.name not in key and column.default is dataclasses.MISSING:
            raise ConfigError(
                f"{where}: field {column.name!r} needs a default, because a row begins with "
                "its key alone"
            )
    columns = tuple(_as_key(column) if column.name in key else column for column in columns)
    return TableSpec(
        name,
        row_type,
        columns,
        key,
        tuple(by_name[part] for part in key),
        columns_taker([column.name for column in columns]),
        make_fold(name, columns, key),
        guard,
    )


def lane_text(key: Key) -> str:
    """A row's key as the name of its lane."""
    parts = [part.hex() if isinstance(part, bytes) else str(part) for part in key]
    is_plain = len(parts) == 1 and not parts[0].startswith(UNKNOWN)
    return lane_name(parts[0] if is_plain else json.dumps(parts, ensure_ascii=False))


def _check_columns(where: str, row_type: type, columns: tuple[Column, ...]) -> None:
    seen = set(GUARDS)
    for column in columns:
        if column.name.lower() in seen:
            raise ConfigError(
                f"{where}: field {column.name!r} and another one differ only in case, "
                "which SQLite does not tell apart"
            )
        seen.add(column.name.lower())
    try:
        inspect.signature(row_type).bind(**{column.name: None for column in columns})
    except TypeError as error:
        raise ConfigError(f"{where} can't be made from its fields alone: {error}") from error


def check_identifier(name: str, where: str) -> None:
    """Raises ConfigError if `name` can't name a table or column on every database."""
    if not isinstance(name, str):
        raise ConfigError(f"{where}: a name is a str, not {type(name).__name__}")
    encoded = name.encode(errors="replace")
    if not name or "\0" in name or len(encoded) > MAX_NAME_BYTES:
        raise ConfigError(f"{where}: a name has 1 to {MAX_NAME_BYTES} bytes and no NUL")
    if name.lower().startswith(("holdfast_", "sqlite_", "pg_")):
        raise ConfigError(f"{where}: names that begin with holdfast_, sqlite_ or pg_ are reserved")
    if encoded.decode() != name:
        raise ConfigError(f"{where}: the name is not valid Unicode")


def _column(where: str, field: dataclasses.Field[Any], annotation: Any) -> Column:
    check_identifier(field.name, f"{where}, field {field.name!r}")
    if field.name in GUARDS:
        raise ConfigError(f"{where}: the field name {field.name!r} is reserved")
    annotation, optional = _without_none(annotation)
    kind = _kind_of(annotation)
    if kind is None:
        raise ConfigError(
            f"{where}: field {field.name!r} is {annotation!r}; a column is one of "
            f"{', '.join(cls.__name__ for cls in KINDS)}, dict, list, or one of these or None"
        )
    default: Any = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if kind == "JSON":
        try:
            check, loaded = json_checks(annotation)
        except TypeError as error:
            raise ConfigError(f"{where}: field {field.name!r}: {error}") from error
    else:
        check = loaded = CHECKS[kind]
    if optional:
        check, loaded = _or_none(check), _or_none(loaded)
    column = Column(field.name, kind, optional, annotation, default, check, loaded)
    if default is not dataclasses.MISSING:
        try:
            column.check(default)
        except CHECK_ERRORS as error:
            raise ConfigError(f"{where}: default of field {field.name!r}: {error}") from error
    return column


def _as_key(column: Column) -> Column:
    """The column with equal values stored alike: 1.50 is 1.5."""
    if column.kind != "Decimal":
        return column
    return dataclasses.replace(column, check=decimal_key)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return annotation, annotation is Any


def _kind_of(annotation: Any) -> ColumnKind | None:
    if isinstance(annotation, type) and annotation in KINDS:
        return KINDS[annotation]
    if annotation is Any or (typing.get_origin(annotation) or annotation) in (dict, list):
        return "JSON"
    return None


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _are(cls: type) -> Callable[[Sequence[Any]], bool]:
    return lambda values: set(map(type, values)) <= {cls}


def _are_ints(values: Sequence[Any]) -> bool:
    if set(map(type, values)) != {int}:
        return False
    return bool(min(values) >= MIN_INT and max(values) <= MAX_INT)


def _are_texts(values: Sequence[Any]) -> bool:
    if set(map(type, values)) != {str}:
        return False
    text = "".join(values)
    return "\0" not in text and (text.isascii() or is_unicode(text))


def _are_moments(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {datetime} and {value.tzinfo for value in values} == {UTC}


BULK_CHECKS: dict[ColumnKind, Callable[[Sequence[Any]], bool]] = {
    "str": _are_texts,
    "int": _are_ints,
    "bool": _are(bool),
    "date": _are(date),
    "datetime": _are_moments,
    "UUID": _are(UUID),
    "bytes": _are(bytes),
}
"""Whether all values would pass their check unchanged; far quicker than checking each."""
