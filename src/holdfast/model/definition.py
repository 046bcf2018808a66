"""A projection class, checked and compiled: what the runner needs to know."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.errors import AppendError, ConfigError
from holdfast.model.event import RawEvent, check_stream
from holdfast.model.event_types import EventTypes, is_event_class
from holdfast.model.feed_names import JOURNAL, MAX_SHARDS, MESSAGES
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.model.lane import UNKNOWN, unknown_lane
from holdfast.model.policy import Park, Policy
from holdfast.model.poll import Poll
from holdfast.model.projection import (
    CATCH_ALL,
    Handler,
    Projection,
    Publisher,
    SqlProjection,
    TableProjection,
    marks_of,
)
from holdfast.model.row_type import (
    CHANGES_COLUMN,
    POSITION_COLUMN,
    VERSION_COLUMN,
    TableSpec,
    check_identifier,
    lane_text,
    table_of,
)
from holdfast.model.sql_spec import SqlSpec, compile_sql

Mode = Literal["live", "shadow", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """How a projection is delivered by the queue: how many lanes at once, and from where on.

    `inline_seconds`: an append waits so long for its events to be applied in its own process.
    `keep_seconds`: for so long, what is done stays in the queue to be looked at.
    """

    concurrency: int
    mode: Mode
    start: Literal["start", "now"]
    inline_seconds: float | None = None
    keep_seconds: float = 0.0


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
    policy: Policy = field(default_factory=Policy)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    mask: Callable[[str], str] | None = None
    outbox: OutboxSettings | None = None
    feed: str = JOURNAL
    intake: ForeignFeed | None = None
    sets: SqlSpec | None = None
    shards: int = 1

    def policy_of(self, event_type: str) -> Policy:
        """The policy for an event type."""
        return self.policies.get(event_type, self.policy)

    @property
    def has_time_limits(self) -> bool:
        """Whether any attempt is limited in time."""
        policies = (self.policy, *self.policies.values())
        return any(policy.backoff.timeout_seconds is not None for policy in policies)

    def masked(self, text: str) -> str:
        """An error's text as logs may show it."""
        if self.mask is None:
            return text
        try:
            return self.mask(text)
        except Exception as error:
            return f"(masked; the mask failed with {type(error).__name__})"

    @property
    def table(self) -> TableSpec | None:
        """The one table of a TableProjection, else None."""
        if isinstance(self.instance, TableProjection):
            (table,) = self.tables.values()
            assert isinstance(table, TableSpec)
            return table
        return None

    @property
    def lanes_are_streams(self) -> bool:
        """Whether no class of the user's own says which lane an event belongs to."""
        cls = type(self.instance)
        if issubclass(cls, TableProjection):
            return cls.key is TableProjection.key
        return cls.lane is Projection.lane

    @property
    def calls_out(self) -> bool:
        """Whether its handlers call other systems, and may take long at any time."""
        instance = self.instance
        return self.feed == MESSAGES or (isinstance(instance, Projection) and instance.calls_out)

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


def lane_of(definition: Definition, types: EventTypes, event: RawEvent) -> str:
    """The lane whose order an event belongs to, or an unknown one where that can't be computed.

    Raises ConfigError if `lane` returns what can't be a lane's name.
    """
    instance = definition.instance
    if definition.lanes_are_streams:
        return event.stream
    if isinstance(instance, Projection):
        try:
            lane = instance.lane(types.decode(event))
        except Exception:
            return unknown_lane(event.stream)
        where = f"projection {definition.name!r}: lane() returned {lane!r} for event {event.id}"
        try:
            check_stream(lane)
        except AppendError as error:
            raise ConfigError(f"{where}; a lane is a text like a stream's name: {error}") from error
        if lane.startswith(UNKNOWN):
            raise ConfigError(f"{where}; {UNKNOWN!r} begins the lanes that can't be computed")
        return lane
    assert definition.table is not None
    try:
        key = instance.key(types.decode(event))
        return lane_text(definition.table.check_key(key if isinstance(key, tuple) else (key,)))
    except Exception:
        return unknown_lane(event.stream)


def compile_projection(
    cls: type,
    *,
    types: EventTypes,
    name: str | None = None,
    strict: bool = False,
    poll: Poll | None = None,
    policy: Policy | None = None,
    mask: Callable[[str], str] | bool = False,
    outbox: OutboxSettings | None = None,
    feed: str = JOURNAL,
    intake: ForeignFeed | None = None,
    shards: int = 1,
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
    sets = compile_sql(instance, where, types) if isinstance(instance, SqlProjection) else None
    if sets is not None and (strict or intake is not None):
        raise ConfigError(
            f"{where}: a SqlProjection takes the types in `events` from the journal; leave out "
            "strict= and source="
        )
    if isinstance(instance, SqlProjection) and type(instance).lane is not Projection.lane:
        raise ConfigError(f"{where}: the lanes of a SqlProjection are streams; leave out lane()")
    handlers, catch_all = _handlers(instance, where, types, sets)
    _check_settings(policy, poll)
    if policy is None and intake is not None:
        policy = Policy.classify(otherwise=Park())
    elif policy is None:
        policy = Policy() if outbox is None else Policy.outbox()
    if poll is None:
        is_local = intake is None and not isinstance(instance, Publisher)
        poll = Poll() if is_local else Poll.patient()
    definition = Definition(
        name=name,
        instance=instance,
        handlers=handlers,
        catch_all=catch_all,
        tables=_tables(instance, name, where, intake),
        strict=strict,
        poll=poll,
        policy=policy,
        policies=_policies(policy, types),
        mask=_mask(mask, where),
        outbox=outbox,
        feed=feed,
        intake=intake,
        sets=sets,
        shards=shards,
    )
    if feed == MESSAGES and definition.table is not None:
        raise ConfigError(f"{where}: a sink takes messages one by one; derive it from Projection")
    if outbox is not None and isinstance(instance, Publisher):
        raise ConfigError(
            f"{where}: a publisher takes whole batches from the log; register it with "
            '@app.projection(), without delivery="outbox"'
        )
    if outbox is not None and not definition.lanes_are_streams:
        raise ConfigError(
            f"{where}: outbox delivery keeps the order of streams, and works on many of them at "
            "once; a class with a key() or lane() of its own needs log delivery"
        )
    if intake is not None and not definition.lanes_are_streams:
        raise ConfigError(
            f"{where}: its source keeps the order of streams, and spreads them over partitions, "
            "which are worked on at once, perhaps by several processes; rows or lanes that are not "
            "a stream's own would be written from many sides. Let the source's decode choose the "
            "stream, or write with SQL in a Projection without a lane()"
        )
    check_shards(definition)
    return definition


def check_shards(definition: Definition) -> None:
    """Raises ConfigError if a projection can't have as many shards as it says."""
    shards, instance = definition.shards, definition.instance
    where = f"projection {definition.name!r}"
    if type(shards) is not int or not 1 <= shards <= MAX_SHARDS:
        raise ConfigError(f"{where}: shards is {shards!r}; it is from 1 to {MAX_SHARDS}")
    why = None
    if definition.intake is not None:
        why = "its source spreads streams over partitions already"
    elif definition.outbox is not None:
        why = "with an outbox many streams are worked on at once already; see concurrency="
    elif definition.sets is not None:
        why = "a SqlProjection's work is the database's, where another process is no help"
    elif isinstance(instance, Publisher):
        why = "a publisher waits for its broker, and not for a processor"
    elif not definition.lanes_are_streams:
        own = "key()" if isinstance(instance, TableProjection) else "lane()"
        why = (
            f"shards are made of whole streams, and with an own {own} one row or lane has events "
            "of several streams, which several shards would write at once and out of order"
        )
    if why is not None and shards != 1:
        raise ConfigError(f"{where} can't have shards: {why}. Leave out shards=")


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
        return _hidden if mask else None
    if not callable(mask):
        raise ConfigError(f"{where}: mask is {mask!r}; give True, or a function from text to text")
    return mask


def _hidden(_: str) -> str:
    return "(masked)"


def snake_case(name: str) -> str:
    """AccountBalances → account_balances."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _handlers(
    instance: Projection | TableProjection[Any],
    where: str,
    types: EventTypes,
    sets: SqlSpec | None,
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
    if sets is not None:
        if found:
            raise ConfigError(f"{where}: a SqlProjection has no handlers; derive from Projection")
        # Statements take the place of handlers, on the connection of each runner.
        found = dict.fromkeys(sets.types or (CATCH_ALL,), _not_called)
    if not found:
        raise ConfigError(f"{where} has no handlers; mark its methods with @on(…)")
    return found, found.pop(CATCH_ALL, None)


def _not_called(*_: object) -> None:
    raise AssertionError("a SqlProjection has statements")


def _handler_marks(
    instance: Projection | TableProjection[Any], attribute: str, where: str
) -> tuple[type | str, ...]:
    """What a handler is for; raises for one that would never be called, or never run."""
    function = inspect.getattr_static(type(instance), attribute)
    where = f"{where}: handler {attribute!r}"
    marks = marks_of(function)
    if not inspect.isfunction(function):
        if marks:
            raise ConfigError(f"{where} must be a method, not a {type(function).__name__}")
        return ()
    if not marks:
        if any(marks_of(vars(base).get(attribute)) for base in type(instance).__mro__):
            raise ConfigError(f"{where} replaces one that is marked; mark it with @on(…) as well")
        return ()
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{where} is a generator and would never run; leave yield out of it")
    _check_arguments(instance, function, where)
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
    instance: Projection | TableProjection[Any], name: str, where: str, intake: ForeignFeed | None
) -> dict[str, str | TableSpec]:
    if isinstance(instance, TableProjection):
        spec = table_of(
            _row_type(type(instance), where),
            name=name,
            key_fields=instance.key_fields,
            guard=_guard(intake),
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
    for table, declared in instance.tables.items():
        check_identifier(table, f"{where}, table {table!r}")
        tables[table] = declared if isinstance(declared, str) else table_of(declared, name=table)
    return tables


def _guard(intake: ForeignFeed | None) -> str:
    if intake is None:
        return POSITION_COLUMN
    return VERSION_COLUMN if intake.contiguous else CHANGES_COLUMN


def _row_type(cls: type, where: str) -> type:
    for ancestor in cls.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            if typing.get_origin(base) is TableProjection:
                (row_type,) = typing.get_args(base)
                if isinstance(row_type, type) and dataclasses.is_dataclass(row_type):
                    return row_type
                raise ConfigError(f"{where}: row type {row_type!r} must be a dataclass")
    raise ConfigError(f"{where}: name the row type, as in TableProjection[Balance]")
