"""The projections and sinks of an App, by name and by class."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import ConfigError
from holdfast.model.definition import Definition, SqlRanges
from holdfast.model.event_types import EventTypes
from holdfast.model.feed_names import MESSAGES
from holdfast.model.sql_spec import check_versions


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
        if name is None or name not in self._definitions:
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
