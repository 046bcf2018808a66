"""The engine that a projection needs."""

from __future__ import annotations

from typing import assert_never

from holdfast.model.definition import Definition, Fold, Handle, Publish, SqlRanges
from holdfast.model.event_types import EventTypes
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.fold import TableEngine
from holdfast.runtime.engines.handlers import HandlerEngine
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.engines.publish import PublishingEngine
from holdfast.runtime.engines.sql_single import SqlEngine
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.session import Session


def engine_of(
    definition: Definition,
    types: EventTypes,
    session: Session,
    invoker: Invoker,
    limits: RuntimeLimits,
) -> Engine:
    """The engine of a projection, on one session."""
    match definition.kind:
        case Fold(projection, table):
            return TableEngine(definition, types, session, invoker, limits, projection, table)
        case SqlRanges(_, spec):
            return SqlEngine(definition, spec, session, invoker, limits)
        case Handle():
            return HandlerEngine(definition, types, session, invoker, limits)
        case Publish(publisher):
            handlers = HandlerEngine(definition, types, session, invoker, limits)
            return PublishingEngine(publisher, session, handlers)
        case _:
            assert_never(definition.kind)
