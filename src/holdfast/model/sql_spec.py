"""A SqlProjection, checked and compiled: its statements, event types and payload columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import inspect

from holdfast.errors import ConfigError
from holdfast.model.event_types import EventTypes, is_event_class
from holdfast.model.projection import CATCH_ALL, SqlProjection
from holdfast.model.rows.column_values import ColumnKind

JOURNAL_COLUMNS = (
    "position",
    "stream",
    "version",
    "id",
    "type",
    "data",
    "metadata",
    "recorded_at",
)


@dataclass(frozen=True, slots=True)
class PayloadField:
    """A field of a payload as a column: its key in the JSON, and the kind of its values."""

    column: str
    key: str
    kind: ColumnKind


@dataclass(frozen=True, slots=True)
class SqlSpec:
    """A compiled SqlProjection. `types` None: all event types."""

    statements: tuple[str, ...]
    types: tuple[str, ...] | None
    fields: tuple[PayloadField, ...]


def compile_sql(projection: SqlProjection, where: str, types: EventTypes) -> SqlSpec:
    """Compiles a SqlProjection, or raises ConfigError."""
    statements = (projection.sql,) if isinstance(projection.sql, str) else tuple(projection.sql)
    if not statements or not all(isinstance(s, str) and s.strip() for s in statements):
        raise ConfigError(f"{where}: `sql` is to be a statement, or a tuple of statements")
    for statement in statements:
        if not re.search(r"\bbatch\b", statement):
            raise ConfigError(
                f"{where}: a statement of `sql` does not read the relation `batch`, so it would do "
                f"the same for any events: {statement.strip()[:80]!r}"
            )
    if not projection.events:
        raise ConfigError(f'{where}: `events` names the event types it is for, or is ("*",)')
    for item in projection.events:
        if not (isinstance(item, str) or is_event_class(item)):
            raise ConfigError(f"{where}: `events` has {item!r}; give event classes or type names")
    names = [types.name_of(i) if isinstance(i, type) else i for i in projection.events]
    return SqlSpec(
        statements=tuple(statement.strip().rstrip(";") for statement in statements),
        types=None if CATCH_ALL in names else tuple(names),
        fields=_fields([item for item in projection.events if isinstance(item, type)]),
    )


def check_versions(spec: SqlSpec, where: str, types: EventTypes) -> None:
    """Raises ConfigError if payloads would have to be upcast, which SQL can't do."""
    for name in spec.types or types.upcast_types():
        if name in types.upcast_types():
            raise ConfigError(
                f"{where}: event type {name!r} has payloads of older versions, and upcasters run "
                "in Python; use a TableProjection or a Projection for it"
            )


def _fields(classes: Sequence[type]) -> tuple[PayloadField, ...]:
    """One column for each field whose kind is the same in all classes that have it."""
    found: dict[str, set[PayloadField]] = {}
    for cls in classes:
        for key, kind in _kinds(cls):
            column = f"data_{key}" if key in JOURNAL_COLUMNS else key
            found.setdefault(column, set()).add(PayloadField(column, key, kind))
    return tuple(fields.pop() for fields in found.values() if len(fields) == 1)


def _kinds(cls: type) -> Iterator[tuple[str, ColumnKind]]:
    """The stored fields of an event class, with their kinds."""
    if hasattr(cls, "model_fields"):
        for name, field in cls.model_fields.items():
            yield name, _kind(_type_info(field.annotation))
        return
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType | inspect.DataclassType)
    for part in info.fields:
        yield part.encode_name, _kind(part.type)


def _type_info(annotation: Any) -> inspect.Type:
    try:
        return inspect.type_info(annotation)
    except (TypeError, NameError):
        return inspect.AnyType()


def _kind(info: inspect.Type) -> ColumnKind:
    if isinstance(info, inspect.UnionType):
        rest = [part for part in info.types if not isinstance(part, inspect.NoneType)]
        return _kind(rest[0]) if len(rest) == 1 else "JSON"
    if isinstance(info, inspect.Metadata):
        return _kind(info.type)
    if isinstance(info, inspect.EnumType | inspect.LiteralType):
        values = (
            [item.value for item in info.cls] if isinstance(info, inspect.EnumType) else info.values
        )
        kinds = {type(value) for value in values}
        return "str" if kinds == {str} else "int" if kinds == {int} else "JSON"
    return _KINDS.get(type(info), "JSON")


_KINDS: dict[type, ColumnKind] = {
    inspect.StrType: "str",
    inspect.BytesType: "str",  # JSON holds them in base64.
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.BoolType: "bool",
    inspect.DecimalType: "Decimal",
    inspect.DateType: "date",
    inspect.DateTimeType: "datetime",
    inspect.UUIDType: "UUID",
}
