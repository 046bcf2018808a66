"""The engine that a projection needs."""

from __future__ import annotations

from holdfast.model.definition import Definition
from holdfast.model.event_types import EventTypes
from holdfast.model.projection import Publisher
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.fold import TableEngine
from holdfast.runtime.engines.handlers import HandlerEngine
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.engines.publish import PublishingEngine
from holdfast.runtime.engines.sql_single import SqlEngine
from holdfast.runtime.store.session import Session


def engine_of(
    definition: Definition, types: EventTypes, session: Session, caller: Invoker
) -> Engine:
    table = definition.table
    if table is not None:
        return TableEngine(definition, types, session, caller, table)
    if definition.sets is not None:
        return SqlEngine(definition, definition.sets, session, caller)
    handlers = HandlerEngine(definition, types, session, caller)
    if isinstance(definition.instance, Publisher):
        return PublishingEngine(definition.instance, session, handlers)
    return handlers
