"""Row types: a dataclass read as a table's columns, with the values each column takes."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

from holdfast.core.errors import ConfigError

ColumnKind = Literal[
    "str", "int", "float", "bool", "Decimal", "date", "datetime", "UUID", "bytes", "JSON"
]
Key = tuple[Any, ...]

MAX_NAME_CHARACTERS = 63
"""PostgreSQL cuts longer names silently."""

MIN_INT, MAX_INT = -(2**63), 2**63 - 1

POSITION_COLUMN = "_position"
"""In every projected row: the position of the last event that changed it."""

_KINDS: dict[type, ColumnKind] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    Decimal: "Decimal",
    date: "date",
    datetime: "datetime",
    UUID: "UUID",
    bytes: "bytes",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `check` returns the value to store, or raises ValueError or TypeError."""

    name: str
    kind: ColumnKind
    optional: bool
    annotation: Any
    default: Any
    check: Callable[[Any], Any]

    def described(self) -> str:
        """The part of a column that existing rows depend on."""
        return f"{self.kind} | None" if self.optional else self.kind


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table whose rows are instances of a dataclass."""

    name: str
    row_type: type
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_indexes: tuple[int, ...]

    def new_row(self, key: Key) -> Any:
        """A row with this key and every other field at its default."""
        return self.row_type(**dict(zip(self.key, key, strict=True)))

    def key_of(self, row: Any) -> Key:
        return tuple(getattr(row, name) for name in self.key)

    def values(self, row: Any) -> tuple[Any, ...]:
        """The row's values in column order, checked; raises naming the column that is wrong."""
        try:
            return tuple([column.check(getattr(row, column.name)) for column in self.columns])
        except (TypeError, ValueError):
            raise self._wrong(row) from None

    def _wrong(self, row: Any) -> ValueError:
        for column in self.columns:
            value = getattr(row, column.name)
            try:
                column.check(value)
            except (TypeError, ValueError) as error:
                return ValueError(
                    f"table {self.name!r}, row {self.key_of(row)!r}: column {column.name!r} "
                    f"({column.described()}) can't hold {value!r}: {error}"
                )
        raise AssertionError("a value was wrong, and no longer is")

    def row(self, values: typing.Sequence[Any]) -> Any:
        """The row from stored values, in column order."""
        return self.row_type(**{c.name: v for c, v in zip(self.columns, values, strict=True)})

    def check_key(self, key: Key) -> Key:
        """The key as it is stored, so that equal keys meet in one row."""
        if len(key) != len(self.key):
            raise ValueError(f"key {key!r} has {len(key)} parts, the table's key is {self.key}")
        return tuple(
            self.columns[i].check(part) for i, part in zip(self.key_indexes, key, strict=True)
        )

    def definition(self) -> str:
        """What must stay the same for existing rows to be right, as JSON."""
        columns = {column.name: column.described() for column in self.columns}
        return json.dumps({"key": self.key, "columns": columns})


def table_of(row_type: type, *, name: str, key_fields: tuple[str, ...] = ()) -> TableSpec:
    """Reads a dataclass as a table; its first field is the key unless `key_fields` names others."""
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
    by_name = {column.name: index for index, column in enumerate(columns)}
    key = key_fields or (columns[0].name,)
    for part in key:
        if part not in by_name:
            raise ConfigError(f"{where}: key_fields names {part!r}, which is not one of its fields")
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
    return TableSpec(name, row_type, columns, key, tuple(by_name[part] for part in key))


def check_identifier(name: str, where: str) -> None:
    """Raises ConfigError if `name` can't name a table or column on every database."""
    if not name or "\0" in name or len(name.encode()) > MAX_NAME_CHARACTERS:
        raise ConfigError(f"{where}: a name has 1 to {MAX_NAME_CHARACTERS} bytes and no NUL")
    if name.lower().startswith(("holdfast_", "sqlite_", "pg_")):
        raise ConfigError(f"{where}: names that begin with holdfast_, sqlite_ or pg_ are reserved")


def _column(where: str, field: dataclasses.Field[Any], annotation: Any) -> Column:
    check_identifier(field.name, f"{where}, field {field.name!r}")
    if field.name == POSITION_COLUMN:
        raise ConfigError(f"{where}: the field name {POSITION_COLUMN!r} is reserved")
    annotation, optional = _without_none(annotation)
    kind = _kind_of(annotation)
    if kind is None:
        raise ConfigError(
            f"{where}: field {field.name!r} is {annotation!r}; a column is one of "
            f"{', '.join(cls.__name__ for cls in _KINDS)}, dict, list, or one of these or None"
        )
    default: Any = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    check = _or_none(_CHECKS[kind]) if optional else _CHECKS[kind]
    column = Column(field.name, kind, optional, annotation, default, check)
    if default is not dataclasses.MISSING:
        try:
            column.check(default)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where}: default of field {field.name!r}: {error}") from error
    return column


def _as_key(column: Column) -> Column:
    """The column with values that are stored alike when they are equal: 1.50 is 1.5."""
    if column.kind != "Decimal":
        return column
    return dataclasses.replace(column, check=_decimal_key)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return annotation, False


def _kind_of(annotation: Any) -> ColumnKind | None:
    if isinstance(annotation, type) and annotation in _KINDS:
        return _KINDS[annotation]
    if annotation is Any or (typing.get_origin(annotation) or annotation) in (dict, list):
        return "JSON"
    return None


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _exactly(cls: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"expected {cls.__name__}, got {type(value).__name__}")
        return value

    return check


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected str, got {type(value).__name__}")
    if "\0" in value:
        raise ValueError("text with a NUL character can't be stored")
    return str.__str__(value)  # A plain str, also from an enum of strings.


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected int, got {type(value).__name__}")
    if not MIN_INT <= value <= MAX_INT:
        raise ValueError("more than 64 bits; use Decimal or str")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected float, got {type(value).__name__}")
    if math.isnan(value):
        raise ValueError("NaN can't be stored; use None")
    return float(value)


def _decimal(value: Any) -> Decimal:
    number: Decimal = _exactly(Decimal)(value)
    if not number.is_finite():
        raise ValueError(f"{number} can't be stored; use None")
    return number


def _decimal_key(value: Any) -> Decimal:
    text = f"{_decimal(value):f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return Decimal("0" if text == "-0" else text)


def _datetime(value: Any) -> datetime:
    moment: datetime = _exactly(datetime)(value)
    if moment.tzinfo is None:
        raise ValueError("a datetime needs a time zone, for example datetime.now(UTC)")
    return moment.astimezone(UTC)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_CHECKS: dict[ColumnKind, Callable[[Any], Any]] = {
    "str": _str,
    "int": _int,
    "float": _float,
    "bool": _exactly(bool),
    "Decimal": _decimal,
    "date": _exactly(date),
    "datetime": _datetime,
    "UUID": _exactly(UUID),
    "bytes": _exactly(bytes),
    "JSON": _json,
}
