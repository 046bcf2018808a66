"""What to do with events: the classes that users write, and their compiled definition."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from holdfast.core.codec import EventTypes, is_event_class
from holdfast.core.errors import ConfigError
from holdfast.core.event import Event
from holdfast.core.policy import Poll
from holdfast.core.table import TableSpec, check_identifier, table_of

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

Handler = Callable[..., Any]
"""A bound handler; it may return a coroutine."""

CATCH_ALL = "*"


class _Delete:
    """The type of DELETE."""

    def __repr__(self) -> str:
        return "DELETE"


DELETE = _Delete()
"""Returned by a TableProjection's handler: delete this row."""


class Tx(Protocol):
    """The transaction that a handler works in; it commits with the checkpoint, or not at all.

    SQL is in the database's own parameter style: `?` on SQLite, `%s` on PostgreSQL.
    """

    @property
    def connection(self) -> Any:
        """The driver's own connection, inside the transaction. Don't commit or roll back."""

    def execute(self, sql: str, params: Any = ()) -> int:
        """Runs one statement and returns the number of rows it changed."""

    def executemany(self, sql: str, params: typing.Iterable[Any]) -> None:
        """Runs one statement once for each set of parameters."""

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""


class Projection:
    """Handlers that get the event and the transaction, for any SQL.

    `tables` maps each table that the projection owns to its DDL in the database's dialect, or to
    a dataclass read as in TableProjection. They are created before the first event, and emptied
    by `holdfast reset`. A handler is `@on(…) def name(self, event, tx)`, or `async def`.
    """

    tables: ClassVar[Mapping[str, str | type]] = {}


class TableProjection(Generic[R]):
    """Folds events into the rows of one table.

    A handler is `@on(…) def name(self, row, event)`, or `async def`. It changes the row in place,
    or returns another one with the same key, or returns DELETE. A row that is not there yet begins
    with its key and the defaults of the other fields.
    """

    key_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that make the key; empty: the row type's first field."""

    def key(self, event: Event[Any]) -> Any:
        """The key of the row that `event` belongs to: one value, or a tuple for several fields.

        None means that the event belongs to no row and is passed over.
        """
        return event.stream


def on(*types: type | str) -> Callable[[F], F]:
    """Marks a handler for these event classes or type names; `on("*")` takes all the others."""
    if not types:
        raise ConfigError('@on needs at least one event class or type name; @on("*") takes all')
    for item in types:
        if not isinstance(item, type | str):
            raise ConfigError(f"@on({item!r}): give event classes or type names")

    def mark(function: F) -> F:
        function.__holdfast_on__ = (*types, *_marks(function))  # type: ignore[attr-defined]
        return function

    return mark


@dataclass(frozen=True, slots=True)
class Definition:
    """A projection, compiled: what the runner needs to know."""

    name: str
    instance: Projection | TableProjection[Any]
    handlers: Mapping[str, Handler]
    catch_all: Handler | None
    tables: Mapping[str, str | TableSpec]
    strict: bool
    poll: Poll

    @property
    def table(self) -> TableSpec | None:
        """The one table of a TableProjection, else None."""
        if isinstance(self.instance, TableProjection):
            (table,) = self.tables.values()
            assert isinstance(table, TableSpec)
            return table
        return None

    def handles(self, event_type: str) -> bool:
        """Whether there is a handler for an event type."""
        return event_type in self.handlers or self.catch_all is not None

    def handler_of(self, event_type: str) -> Handler | None:
        """The handler for an event type; None passes the event over."""
        handler = self.handlers.get(event_type, self.catch_all)
        if handler is None and self.strict:
            raise ConfigError(
                f"projection {self.name!r} is strict and has no handler for event type "
                f"{event_type!r}; add one, or register the projection without strict=True"
            )
        return handler


def compile_projection(
    cls: type,
    *,
    types: EventTypes,
    name: str | None = None,
    strict: bool = False,
    poll: Poll | None = None,
) -> Definition:
    """Reads a projection class; whatever is wrong with it is a ConfigError now."""
    if not (isinstance(cls, type) and issubclass(cls, Projection | TableProjection)):
        raise ConfigError(
            f"{getattr(cls, '__qualname__', cls)!r} is not a projection; derive it from "
            "TableProjection[Row] or Projection"
        )
    name = snake_case(cls.__name__) if name is None else name
    where = f"projection {name!r}"
    check_identifier(name, where)
    try:
        instance = cls()
    except TypeError as error:
        raise ConfigError(f"{where}: {cls.__qualname__}() failed: {error}") from error
    handlers, catch_all = _handlers(instance, where, types)
    return Definition(
        name=name,
        instance=instance,
        handlers=handlers,
        catch_all=catch_all,
        tables=_tables(instance, name, where),
        strict=strict,
        poll=poll or Poll(),
    )


def snake_case(name: str) -> str:
    """AccountBalances → account_balances."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _handlers(
    instance: Projection | TableProjection[Any], where: str, types: EventTypes
) -> tuple[dict[str, Handler], Handler | None]:
    found: dict[str, Handler] = {}
    for attribute in dir(type(instance)):
        for item in _handler_marks(instance, attribute, where):
            if isinstance(item, type) and not is_event_class(item):
                raise ConfigError(
                    f"{where}: handler {attribute!r} is for {item.__qualname__}, which can't be an "
                    "event; use a dataclass, a msgspec Struct, a pydantic model or a type name"
                )
            type_name = types.name_of(item) if isinstance(item, type) else item
            if type_name in found:
                raise ConfigError(f"{where} has two handlers for event type {type_name!r}")
            found[type_name] = getattr(instance, attribute)
    if not found:
        raise ConfigError(f"{where} has no handlers; mark its methods with @on(…)")
    return found, found.pop(CATCH_ALL, None)


def _handler_marks(
    instance: Projection | TableProjection[Any], attribute: str, where: str
) -> tuple[type | str, ...]:
    """What a handler is for; raises for one that would never be called, or never run."""
    function = inspect.getattr_static(type(instance), attribute)
    where = f"{where}: handler {attribute!r}"
    marks = _marks(function)
    if not inspect.isfunction(function):
        if marks:
            raise ConfigError(f"{where} must be a method, not a {type(function).__name__}")
        return ()
    if not marks:
        if any(_marks(vars(base).get(attribute)) for base in type(instance).__mro__):
            raise ConfigError(f"{where} replaces one that is marked; mark it with @on(…) as well")
        return ()
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{where} is a generator and would never run; leave yield out of it")
    _check_arguments(instance, function, where)
    return marks


def _marks(function: Any) -> tuple[type | str, ...]:
    """The types given to @on, also where a classmethod or staticmethod hides them."""
    inner = getattr(function, "__func__", None)
    marks: tuple[type | str, ...] = getattr(
        function, "__holdfast_on__", getattr(inner, "__holdfast_on__", ())
    )
    return marks


def _check_arguments(
    instance: Projection | TableProjection[Any], function: Callable[..., Any], where: str
) -> None:
    wanted = "(self, row, event)" if isinstance(instance, TableProjection) else "(self, event, tx)"
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError as error:
        raise ConfigError(f"{where} must take {wanted}: {error}") from error


def _tables(
    instance: Projection | TableProjection[Any], name: str, where: str
) -> dict[str, str | TableSpec]:
    if isinstance(instance, TableProjection):
        spec = table_of(_row_type(type(instance), where), name=name, key_fields=instance.key_fields)
        if type(instance).key is TableProjection.key and (
            len(spec.key) > 1 or spec.columns[spec.key_indexes[0]].kind != "str"
        ):
            raise ConfigError(
                f"{where}: its key is {spec.key}, and only a single str key can be the event's "
                "stream; define key(self, event)"
            )
        return {name: spec}
    tables: dict[str, str | TableSpec] = {}
    for table, declared in instance.tables.items():
        check_identifier(table, f"{where}, table {table!r}")
        tables[table] = declared if isinstance(declared, str) else table_of(declared, name=table)
    return tables


def _row_type(cls: type, where: str) -> type:
    for ancestor in cls.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            if typing.get_origin(base) is TableProjection:
                (row_type,) = typing.get_args(base)
                if isinstance(row_type, type) and dataclasses.is_dataclass(row_type):
                    return row_type
                raise ConfigError(f"{where}: row type {row_type!r} must be a dataclass")
    raise ConfigError(f"{where}: name the row type, as in TableProjection[Balance]")
