"""A SqlProjection's statements for one event at a time: from the queue, or under suspicion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.sql_spec import SqlSpec
from holdfast.runtime.engines.handlers import HandlerEngine
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import HandlerTx


class SqlEngine(HandlerEngine):
    """Applies single events as handlers do, and has the statements for whole ranges."""

    def __init__(
        self,
        definition: Definition,
        spec: SqlSpec,
        session: Session,
        invoker: Invoker,
        limits: RuntimeLimits,
    ) -> None:
        self.statements = session.range_statements(spec)
        catch_all = self._apply if spec.types is None else None
        handlers = dict.fromkeys(spec.types or (), self._apply)
        definition = replace(definition, handlers=handlers, catch_all=catch_all)
        super().__init__(definition, _AsStored(), session, invoker, limits)

    def _apply(self, event: RawEvent, tx: HandlerTx) -> None:
        self.statements.apply_one(tx, event)


class _AsStored(EventTypes):
    """Leaves payloads to the database."""

    def decode(self, raw: RawEvent) -> Any:
        return raw
