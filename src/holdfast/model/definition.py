"""A projection class, checked and compiled for the runtime.

`kind` says how its events are applied, `delivery` how they reach it. Both are closed unions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.errors import AppendError, ConfigError
from holdfast.model import arguments
from holdfast.model.event import RawEvent, check_stream
from holdfast.model.event_types import EventTypes
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.model.lane import UNKNOWN, lane_name, unknown_lane
from holdfast.model.policy import Policy
from holdfast.model.poll import Poll
from holdfast.model.projection import Handler, Projection, Publisher, TableProjection
from holdfast.model.rows.row_type import TableSpec, lane_text
from holdfast.model.sql_spec import SqlSpec
from holdfast.model.start import Start
from holdfast.model.tuning import Tuning

Mode = Literal["live", "shadow", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Fold:
    """A TableProjection: events are folded into the rows of one table."""

    projection: TableProjection[Any]
    table: TableSpec


@dataclass(frozen=True, slots=True)
class Handle:
    """A Projection: its handlers get the event and the transaction."""

    projection: Projection


@dataclass(frozen=True, slots=True)
class SqlRanges:
    """A SqlProjection: the database applies ranges of the journal by statements."""

    projection: Projection
    spec: SqlSpec


@dataclass(frozen=True, slots=True)
class Publish:
    """A Publisher: events are passed on to another system."""

    projection: Publisher


Kind = Fold | Handle | SqlRanges | Publish


@dataclass(frozen=True, slots=True)
class Log:
    """A runner reads the journal, or one runner for each shard of it."""

    shards: int = 1


@dataclass(frozen=True, slots=True)
class Outbox:
    """Relays take events from the queue, where each append puts them.

    `concurrency`: maximum of lanes that a process works on at once. `inline_seconds`: maximum time
    that an append waits until its events are applied in its own process. `keep_seconds`: time for
    which an applied event stays in the queue.
    """

    concurrency: int = 8
    mode: Mode = "live"
    inline_seconds: float | None = None
    keep_seconds: float = 0.0

    def __post_init__(self) -> None:
        arguments.concurrency(self.concurrency)
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}; it is one of {', '.join(MODES)}")
        if self.inline_seconds is not None:
            arguments.seconds("inline_seconds", self.inline_seconds)
        if self.inline_seconds == 0:
            raise ConfigError("inline_seconds is 0; it must be more than 0, or None")
        arguments.seconds("keep_seconds", self.keep_seconds)


@dataclass(frozen=True, slots=True)
class Foreign:
    """One runner for each feed that another system writes."""

    feed: ForeignFeed


Delivery = Log | Outbox | Foreign


@dataclass(frozen=True, slots=True)
class Definition:
    """A projection, compiled. `feed` is the name of its feed, or of the first of several."""

    name: str
    kind: Kind
    delivery: Delivery
    handlers: Mapping[str, Handler]
    catch_all: Handler | None
    tables: Mapping[str, str | TableSpec]
    strict: bool
    tuning: Tuning
    """What operators may change while it runs."""
    feed: str = JOURNAL
    mask: Callable[[str], str] | None = None
    start: Start = "start"

    @property
    def poll(self) -> Poll:
        return self.tuning.now.poll

    @property
    def policy(self) -> Policy:
        return self.tuning.now.policy

    def policy_of(self, event_type: str) -> Policy:
        """The policy for an event type."""
        now = self.tuning.now
        return now.policies.get(event_type, now.policy)

    def masked(self, text: str) -> str:
        """The text of an error, as logs may show it."""
        if self.mask is None:
            return text
        try:
            return self.mask(text)
        except Exception as error:
            return f"(masked; the mask failed with {type(error).__name__})"

    @property
    def shards(self) -> int:
        """The number of shards that the code declares."""
        return self.delivery.shards if isinstance(self.delivery, Log) else 1

    @property
    def foreign(self) -> ForeignFeed | None:
        """The feed of another system; None for the journal and for messages."""
        return self.delivery.feed if isinstance(self.delivery, Foreign) else None

    @property
    def lanes_are_streams(self) -> bool:
        """Whether an event's lane is its stream: the class has no `key` or `lane` of its own."""
        cls = type(self.kind.projection)
        if issubclass(cls, TableProjection):
            return cls.key is TableProjection.key
        return cls.lane is Projection.lane

    @property
    def calls_out(self) -> bool:
        """Whether its handlers call other systems, and may take long."""
        if self.feed == MESSAGES:
            return True
        return isinstance(self.kind, Handle) and self.kind.projection.calls_out

    def handles(self, event_type: str) -> bool:
        """Whether there is a handler for an event type."""
        return event_type in self.handlers or self.catch_all is not None

    def handler_of(self, event_type: str) -> Handler | None:
        """The handler for an event type; None if the event is passed over."""
        handler = self.handlers.get(event_type, self.catch_all)
        if handler is None and self.strict:
            raise ConfigError(
                f"projection {self.name!r} is strict and has no handler for event type "
                f"{event_type!r}; add one, or register the projection without strict=True"
            )
        return handler


def lane_of(definition: Definition, types: EventTypes, event: RawEvent) -> str:
    """The lane of an event, or the unknown lane of its stream if it can't be computed.

    Raises ConfigError if `lane` returns something that can't be a lane's name.
    """
    if definition.lanes_are_streams:
        return event.stream
    match definition.kind:
        case Fold(projection, table):
            try:
                key = projection.key(types.decode(event))
                return lane_text(table.check_key(key if isinstance(key, tuple) else (key,)))
            except Exception:
                return unknown_lane(event.stream)
        case Handle() | SqlRanges() | Publish():
            return _lane_by_method(definition, types, event)


def _lane_by_method(definition: Definition, types: EventTypes, event: RawEvent) -> str:
    projection = definition.kind.projection
    assert isinstance(projection, Projection)
    try:
        lane = projection.lane(types.decode(event))
    except Exception:
        return unknown_lane(event.stream)
    where = f"projection {definition.name!r}: lane() returned {lane!r} for event {event.id}"
    if isinstance(lane, str):
        lane = lane_name(lane)
    try:
        check_stream(lane)
    except AppendError as error:
        raise ConfigError(f"{where}; a lane is a text like a stream's name: {error}") from error
    if lane.startswith(UNKNOWN):
        raise ConfigError(f"{where}; {UNKNOWN!r} begins the lanes that can't be computed")
    return lane
