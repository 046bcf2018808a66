"""The projections and sinks of an App, their settings, and how they are found by name or class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from holdfast.errors import ConfigError
from holdfast.model.compile_projection import CommonSettings, check_shards, compile_projection
from holdfast.model.definition import Definition, Delivery, Foreign, Log, Mode, Outbox, SqlRanges
from holdfast.model.event_types import EventTypes
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.model.sql_spec import check_versions
from holdfast.model.start import Start, check_start
from holdfast.runtime.run.foreign_source import ForeignSource


class SinkSettings(CommonSettings, total=False):
    """Settings of `app.sink`, and of outbox delivery."""

    concurrency: int
    """How many lanes a process works on at once, for handlers that are slow: 8 by default."""
    mode: Mode
    """With "off", the queue fills and nobody works."""
    keep_seconds: float
    """How long an applied event stays in the queue to be looked at."""


class ProjectionSettings(SinkSettings, total=False):
    """Settings of `app.projection`."""

    source: ForeignSource | None
    """Where the events come from, if not from the journal: a `holdfast.kafka.KafkaSource`."""
    strict: bool
    """Makes an event type without a handler a fault, instead of passing it over."""
    delivery: Literal["log", "outbox"]
    """With "outbox", events are applied from the queue, where every append puts them."""
    start: Start
    """Where it begins on a journal that has events: at the start, now, a position or a time."""
    inline_seconds: float | None
    """How long an append waits for its events to be applied at once, in its own process."""
    shards: int
    """How many runners share the streams when the projection begins; `reshard` changes it."""


DEFAULTS: ProjectionSettings = {
    "name": None,
    "source": None,
    "strict": False,
    "poll": None,
    "policy": None,
    "mask": False,
    "delivery": "log",
    "concurrency": 8,
    "mode": "live",
    "start": "start",
    "inline_seconds": None,
    "keep_seconds": 0.0,
    "shards": 1,
}


def delivery_of(settings: ProjectionSettings) -> Delivery:
    """How events come to a projection with these settings; raises ConfigError if they are wrong."""
    _check_names(settings, ProjectionSettings)
    for name in settings.keys() & Outbox.__dataclass_fields__.keys():
        if settings.get("delivery") != "outbox":
            raise ConfigError(f"{name}= is for delivery='outbox'; say that too, or leave it out")
    settings = {**DEFAULTS, **settings}
    delivery, source, shards = settings["delivery"], settings["source"], settings["shards"]
    check_start(settings["start"])
    if delivery not in ("log", "outbox"):
        raise ConfigError(f"delivery is {delivery!r}; it is 'log' or 'outbox'")
    if delivery == "outbox" and source is not None:
        raise ConfigError("delivery='outbox' is for the journal, and not for a source")
    if source is not None and settings["start"] != "start":
        raise ConfigError("start= is for the journal; say where to begin in the source: start=…")
    if type(settings["strict"]) is not bool:
        raise ConfigError(f"strict is {settings['strict']!r}; it is True or False")
    outbox = outbox_of(settings)
    if source is not None and not hasattr(source, "foreign_feed"):
        raise ConfigError(f"source is {source!r}; it is a KafkaSource, or None for the journal")
    if source is not None:
        return Foreign(source.foreign_feed())
    if delivery == "outbox":
        return outbox
    return Log() if shards == 1 else Log(shards)


def outbox_of(settings: SinkSettings) -> Outbox:
    """Outbox delivery with these settings; raises ConfigError if they are wrong."""
    return Outbox(**_only(settings, Outbox.__dataclass_fields__))


def definition_of(
    cls: type, types: EventTypes, delivery: Delivery, settings: ProjectionSettings
) -> Definition:
    """The definition of a projection; raises ConfigError if class and settings don't fit."""
    source = settings.get("source")
    definition = compile_projection(
        cls,
        types=types,
        strict=settings.get("strict", False),
        delivery=delivery,
        feed=JOURNAL if source is None else source.feed,
        start=settings.get("start", "start"),
        **_only(settings, CommonSettings.__annotations__),
    )
    check_shards(definition, settings.get("shards", 1))
    return definition


def sink_definition_of(cls: type, types: EventTypes, settings: SinkSettings) -> Definition:
    """The definition of a sink; raises ConfigError if class and settings don't fit."""
    _check_names(settings, SinkSettings)
    return compile_projection(
        cls,
        types=types,
        strict=True,  # A message that nobody handles is not passed over.
        delivery=outbox_of(settings),
        feed=MESSAGES,
        **_only(settings, CommonSettings.__annotations__),
    )


def _only(settings: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    return {name: value for name, value in settings.items() if name in names}


def _check_names(settings: Mapping[str, Any], known: type) -> None:
    names = known.__annotations__
    for name in settings.keys() - names.keys():
        raise ConfigError(f"there is no setting {name!r}; the settings are {', '.join(names)}")


class Catalog:
    """The projections and sinks that are registered on an App."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._classes: dict[type, str] = {}

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._definitions)

    def add(self, cls: type, definition: Definition) -> None:
        """Adds a projection; raises ConfigError if its name or one of its tables is taken."""
        if definition.name in self._definitions:
            raise ConfigError(
                f"two projections are named {definition.name!r}; "
                "give one another name: @app.projection(name=…)"
            )
        for other in self:
            for table in definition.tables.keys() & other.tables.keys():
                raise ConfigError(
                    f"projections {other.name!r} and {definition.name!r} both declare table "
                    f"{table!r}; a table belongs to one projection"
                )
        self._definitions[definition.name] = definition
        self._classes[cls] = definition.name

    def check(self, types: EventTypes) -> None:
        """Raises ConfigError if event types and projections don't fit."""
        types.check()
        for definition in self:
            if isinstance(definition.kind, SqlRanges):
                check_versions(definition.kind.spec, f"projection {definition.name!r}", types)

    def find(self, projection: str | type) -> Definition:
        """A projection or a sink, by its name or its class."""
        name = self._classes.get(projection) if isinstance(projection, type) else projection
        if not isinstance(name, str) or name not in self._definitions:
            known = ", ".join(self._definitions) or "none"
            raise ConfigError(f"there is no projection {projection!r}; the app has: {known}")
        return self._definitions[name]

    def find_projection(self, projection: str | type, what: str) -> Definition:
        """A projection; raises ConfigError for a sink, whose messages are in no journal."""
        definition = self.find(projection)
        if definition.feed == MESSAGES:
            raise ConfigError(
                f"{definition.name!r} is a sink, which can't {what}: its messages are nowhere but "
                "in the queue; holdfast queue list shows them"
            )
        return definition
