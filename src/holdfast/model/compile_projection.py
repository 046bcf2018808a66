"""Compiles a projection class to a Definition; raises ConfigError for what is wrong with it."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

from holdfast.errors import ConfigError
from holdfast.model.definition import (
    Definition,
    Delivery,
    Fold,
    Foreign,
    Handle,
    Kind,
    Log,
    Outbox,
    Publish,
    SqlRanges,
)
from holdfast.model.event_types import EventTypes, is_event_class
from holdfast.model.feed_names import JOURNAL, MAX_SHARDS, MESSAGES
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.model.policy import Park, Policy
from holdfast.model.poll import Poll
from holdfast.model.projection import (
    CATCH_ALL,
    Handler,
    Projection,
    Publisher,
    SqlProjection,
    TableProjection,
    handled_types,
    hook_of,
)
from holdfast.model.rows.row_type import (
    CHANGES_COLUMN,
    POSITION_COLUMN,
    VERSION_COLUMN,
    TableSpec,
    check_identifier,
    table_of,
)
from holdfast.model.sql_spec import SqlSpec, compile_sql
from holdfast.model.start import Start
from holdfast.model.tuning import Settings, Tuning


class CommonSettings(TypedDict, total=False):
    """Settings of every projection and sink."""

    name: str | None
    """By default the name of the class in snake case."""
    poll: Poll | None
    """How the feed is read."""
    policy: Policy | None
    """What follows when an event fails."""
    mask: Callable[[str], str] | bool
    """Keeps the text of errors out of the logs: True hides it, a function changes it."""


def compile_projection(
    cls: type,
    *,
    types: EventTypes,
    strict: bool = False,
    delivery: Delivery | None = None,
    feed: str = JOURNAL,
    start: Start = "start",
    **settings: Unpack[CommonSettings],
) -> Definition:
    """Compiles a projection class, or raises ConfigError."""
    if not (isinstance(cls, type) and issubclass(cls, Projection | TableProjection)):
        raise ConfigError(
            f"{getattr(cls, '__qualname__', cls)!r} is not a projection; derive it from "
            "TableProjection[Row] or Projection"
        )
    delivery = delivery or Log()
    name = settings.get("name")
    name = snake_case(cls.__name__) if name is None else name
    poll, policy, mask = settings.get("poll"), settings.get("policy"), settings.get("mask", False)
    where = f"projection {name!r}"
    check_identifier(name, where)
    try:
        instance = cls()
    except TypeError as error:
        raise ConfigError(f"{where}: {cls.__qualname__}() failed: {error}") from error
    sql = compile_sql(instance, where, types) if isinstance(instance, SqlProjection) else None
    handlers, catch_all = _handlers(instance, where, types, sql)
    _check_hooks(instance, where)
    tables = _tables(
        instance, name, where, delivery.feed if isinstance(delivery, Foreign) else None
    )
    _check_settings(policy, poll)
    policy = policy or _default_policy(delivery)
    definition = Definition(
        name=name,
        kind=_kind(instance, sql, tables),
        delivery=delivery,
        handlers=handlers,
        catch_all=catch_all,
        tables=tables,
        strict=strict,
        tuning=Tuning(
            Settings(
                poll=poll or _default_poll(instance, delivery),
                policy=policy,
                policies=_policies(policy, types),
                concurrency=delivery.concurrency if isinstance(delivery, Outbox) else None,
            )
        ),
        feed=feed,
        mask=_mask(mask, where),
        start=start,
    )
    _check_kind(definition, where)
    check_shards(definition, definition.shards)
    return definition


def _kind(
    instance: Projection | TableProjection[Any],
    sql: SqlSpec | None,
    tables: Mapping[str, str | TableSpec],
) -> Kind:
    if isinstance(instance, TableProjection):
        (table,) = tables.values()
        assert isinstance(table, TableSpec)
        return Fold(instance, table)
    if sql is not None:
        return SqlRanges(instance, sql)
    return Publish(instance) if isinstance(instance, Publisher) else Handle(instance)


def _default_policy(delivery: Delivery) -> Policy:
    match delivery:
        case Log():
            return Policy()
        case Outbox():
            return Policy.outbox()
        case Foreign():
            return Policy.classify(otherwise=Park())


def _default_poll(instance: Projection | TableProjection[Any], delivery: Delivery) -> Poll:
    is_local = not isinstance(delivery, Foreign) and not isinstance(instance, Publisher)
    return Poll() if is_local else Poll.patient()


def _check_kind(definition: Definition, where: str) -> None:
    """Raises ConfigError if a projection's kind and delivery don't fit."""
    kind, delivery = definition.kind, definition.delivery
    if isinstance(kind, SqlRanges) and (definition.strict or isinstance(delivery, Foreign)):
        raise ConfigError(
            f"{where}: a SqlProjection takes the types in `events` from the journal; leave out "
            "strict= and source="
        )
    try:
        inspect.signature(type(kind.projection).clear).bind(None, None)
    except TypeError as error:
        raise ConfigError(f"{where}: clear must take (self, tx): {error}") from error
    if isinstance(kind, SqlRanges) and not definition.lanes_are_streams:
        raise ConfigError(f"{where}: the lanes of a SqlProjection are streams; leave out lane()")
    if definition.feed == MESSAGES and isinstance(kind, Fold):
        raise ConfigError(f"{where}: a sink takes messages one by one; derive it from Projection")
    if isinstance(delivery, Outbox) and isinstance(kind, Publish):
        raise ConfigError(
            f"{where}: a publisher takes whole batches from the log; register it with "
            '@app.projection(), without delivery="outbox"'
        )
    if isinstance(delivery, Outbox) and not definition.lanes_are_streams:
        raise ConfigError(
            f"{where}: outbox delivery keeps the order of streams, and works on many of them at "
            "once; a class with a key() or lane() of its own needs log delivery"
        )
    if isinstance(delivery, Foreign) and not definition.lanes_are_streams:
        raise ConfigError(
            f"{where}: its source keeps the order of streams, and spreads them over partitions, "
            "which are worked on at once, perhaps by several processes; rows or lanes that are not "
            "a stream's own would be written from many sides. Let the source's decode choose the "
            "stream, or write with SQL in a Projection without a lane()"
        )


def check_shards(definition: Definition, shards: int) -> None:
    """Raises ConfigError if a projection can't run in that number of shards."""
    where = f"projection {definition.name!r}"
    if type(shards) is not int or not 1 <= shards <= MAX_SHARDS:
        raise ConfigError(f"{where}: shards is {shards!r}; it is from 1 to {MAX_SHARDS}")
    if shards != 1 and (why := _why_no_shards(definition)) is not None:
        raise ConfigError(f"{where} can't have shards: {why}. Leave out shards=")


def _why_no_shards(definition: Definition) -> str | None:
    if isinstance(definition.delivery, Foreign):
        return "its source spreads streams over partitions already"
    if isinstance(definition.delivery, Outbox):
        return "with an outbox many streams are worked on at once already; see concurrency="
    if isinstance(definition.kind, SqlRanges):
        return "a SqlProjection's work is the database's, where another process is no help"
    if isinstance(definition.kind, Publish):
        return "a publisher waits for its broker, and not for a processor"
    if not definition.lanes_are_streams:
        own = "key()" if isinstance(definition.kind, Fold) else "lane()"
        return (
            f"shards are made of whole streams, and with an own {own} one row or lane has events "
            "of several streams, which several shards would write at once and out of order"
        )
    return None


def _check_settings(policy: object, poll: object) -> None:
    if not isinstance(policy, Policy | None):
        raise ConfigError(
            f"policy is {policy!r}, not a Policy; a decision for all failures is "
            "Policy(on_error=Park()), for example"
        )
    if not isinstance(poll, Poll | None):
        raise ConfigError(
            f"poll is {poll!r}, not a Poll; write Poll(interval_seconds=3), for example"
        )


def _policies(policy: Policy, types: EventTypes) -> dict[str, Policy]:
    return {
        types.name_of(item) if isinstance(item, type) else item: own
        for item, own in policy.event_types.items()
    }


def _mask(mask: Callable[[str], str] | bool, where: str) -> Callable[[str], str] | None:
    if isinstance(mask, bool):
        return (lambda _: "(masked)") if mask else None
    if not callable(mask):
        raise ConfigError(f"{where}: mask is {mask!r}; give True, or a function from text to text")
    return mask


def snake_case(name: str) -> str:
    """AccountBalances → account_balances."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _handlers(
    instance: Projection | TableProjection[Any],
    where: str,
    types: EventTypes,
    sql: SqlSpec | None,
) -> tuple[dict[str, Handler], Handler | None]:
    found: dict[str, Handler] = {}
    for attribute in dir(type(instance)):
        for item in _handled_types(instance, attribute, where):
            if isinstance(item, type) and not is_event_class(item):
                raise ConfigError(
                    f"{where}: handler {attribute!r} is for {item.__qualname__}, which can't be an "
                    "event; use a dataclass, a msgspec Struct, a pydantic model or a type name"
                )
            type_name = types.name_of(item) if isinstance(item, type) else item
            if type_name in found:
                raise ConfigError(f"{where} has two handlers for event type {type_name!r}")
            found[type_name] = getattr(instance, attribute)
    if sql is not None:
        if found:
            raise ConfigError(f"{where}: a SqlProjection has no handlers; derive from Projection")
        # Statements replace the handlers, on the connection of each runner.
        found = dict.fromkeys(sql.types or (CATCH_ALL,), _not_called)
    if not found:
        raise ConfigError(f"{where} has no handlers; mark its methods with @on(…)")
    return found, found.pop(CATCH_ALL, None)


def _not_called(*_: object) -> None:
    raise AssertionError("a SqlProjection has statements")


def _handled_types(
    instance: Projection | TableProjection[Any], attribute: str, where: str
) -> tuple[type | str, ...]:
    """The types given to a handler's @on; raises ConfigError if it would never be called or run."""
    function = inspect.getattr_static(type(instance), attribute)
    where = f"{where}: handler {attribute!r}"
    types = handled_types(function)
    if not inspect.isfunction(function):
        if types:
            raise ConfigError(f"{where} must be a method, not a {type(function).__name__}")
        return ()
    if not types:
        if any(handled_types(vars(base).get(attribute)) for base in type(instance).__mro__):
            raise ConfigError(f"{where} replaces one that is marked; mark it with @on(…) as well")
        return ()
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{where} is a generator and would never run; leave yield out of it")
    _check_arguments(instance, function, where)
    return types


def _check_arguments(
    instance: Projection | TableProjection[Any], function: Callable[..., Any], where: str
) -> None:
    wanted = "(self, row, event)" if isinstance(instance, TableProjection) else "(self, event, tx)"
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError as error:
        raise ConfigError(f"{where} must take {wanted}: {error}") from error


def _check_hooks(instance: Projection | TableProjection[Any], where: str) -> None:
    for name in ("started", "stopped"):
        hook = hook_of(instance, name)
        if hook is None:
            continue
        try:
            inspect.signature(hook).bind()
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{where}: {name}() is called without arguments when a worker has {name}; give "
                f"this one another name, or let it take nothing but self: {error}"
            ) from error
        if inspect.iscoroutinefunction(hook):
            raise ConfigError(
                f"{where}: {name}() can't be async def, because each worker has an event loop of "
                "its own; open async clients in the handlers"
            )


def _tables(
    instance: Projection | TableProjection[Any], name: str, where: str, foreign: ForeignFeed | None
) -> dict[str, str | TableSpec]:
    if isinstance(instance, TableProjection):
        spec = table_of(
            _row_type(type(instance), where),
            name=name,
            key_fields=instance.key_fields,
            guard=_guard(foreign),
        )
        if type(instance).key is TableProjection.key and (
            len(spec.key) > 1 or spec.columns[spec.key_indexes[0]].kind != "str"
        ):
            raise ConfigError(
                f"{where}: its key is {spec.key}, and only a single str key can be the event's "
                "stream; define key(self, event)"
            )
        return {name: spec}
    tables: dict[str, str | TableSpec] = {}
    if not isinstance(instance.tables, Mapping):
        raise ConfigError(
            f"{where}: tables is {instance.tables!r}; it is a dict from the name of each table to "
            "its CREATE TABLE statement or its row type"
        )
    for table, declared in instance.tables.items():
        check_identifier(table, f"{where}, table {table!r}")
        tables[table] = declared if isinstance(declared, str) else table_of(declared, name=table)
    return tables


def _guard(foreign: ForeignFeed | None) -> str:
    if foreign is None:
        return POSITION_COLUMN
    return VERSION_COLUMN if foreign.versions_only_grow else CHANGES_COLUMN


def _row_type(cls: type, where: str) -> type:
    for ancestor in cls.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            if typing.get_origin(base) is TableProjection:
                (row_type,) = typing.get_args(base)
                if isinstance(row_type, type) and dataclasses.is_dataclass(row_type):
                    return row_type
                raise ConfigError(f"{where}: row type {row_type!r} must be a dataclass")
    raise ConfigError(f"{where}: name the row type, as in TableProjection[Balance]")
