"""A SqlProjection's statements on one connection: what `batch` is, and how a range is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.model.event import RawEvent
from holdfast.model.sql_spec import JOURNAL_COLUMNS, SqlSpec
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.transaction import HandlerTx
from holdfast.sql.database import Connection, Database, quote
from holdfast.sql.range_dialect import RangeDialect
from holdfast.sql.store.checkpoints import of

_WITH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE | re.DOTALL)

WAITING_EVENTS = 100
"""Maximum of events of closed lanes that are read at a time."""


class SqlRangeStatements:
    """The statements of one SqlProjection, run on a runner's connection."""

    def __init__(
        self, database: Database, connection: Callable[[], Connection], spec: SqlSpec
    ) -> None:
        """`connection`: the session's, which may change."""
        self._database, self._connection = database, connection
        self._types = {f"type_{n}": name for n, name in enumerate(spec.types or ())}
        own = database.range_dialect
        at = own.parameter
        wanted = (
            f"holdfast_event AS e WHERE e.position > {at('after')} AND e.position <= "
            f"{at('through')}"
        )
        if spec.types is not None:
            wanted += f" AND {own.is_one_of('e.type', [*map(at, self._types)])}"
        closed = (
            "EXISTS (SELECT 1 FROM holdfast_lane AS l WHERE l.lane = e.stream "
            f"AND l.projection = {at('projection')} AND l.feed = {at('feed')})"
        )
        self._all = _statements(spec, own, wanted)
        self._open = _statements(spec, own, f"{wanted} AND NOT {closed}")
        self._one = _statements(spec, own, f"({own.one}) AS e")
        self._waiting = (
            f"SELECT {own.events} FROM {wanted} AND {closed} "
            f"ORDER BY e.position LIMIT {at('limit')}"
        )

    def waiting(self, checkpoint: Checkpoint, events: EventRange) -> Iterator[RawEvent]:
        params = {**self._params(events), **of(checkpoint), "limit": WAITING_EVENTS}
        while True:
            rows = self._connection().run_native(self._waiting, params)
            yield from self._connection().raw_events(rows)
            if len(rows) < WAITING_EVENTS:
                return
            params["after"] = rows[-1][0]

    def apply(self, events: EventRange, closed_for: Checkpoint | None) -> None:
        params = self._params(events)
        if closed_for is not None:
            params |= of(closed_for)
        for statement in self._all if closed_for is None else self._open:
            self._connection().run_native(statement, params)

    def apply_one(self, tx: HandlerTx, event: RawEvent) -> None:
        params = {name: getattr(event, name) for name in JOURNAL_COLUMNS}
        for statement in self._one:
            tx.execute(statement, self._database.plain(params))

    def _params(self, events: EventRange) -> dict[str, Any]:
        return {"after": events.after, "through": events.through, **self._types}


def _statements(spec: SqlSpec, own: RangeDialect, relation: str) -> list[str]:
    """A user's statements with `batch` before each, made from a relation `e` like the journal."""
    columns = [f"e.{name}" for name in JOURNAL_COLUMNS]
    columns += [
        f"{own.column(field)} AS {own.escaped(quote(field.column))}" for field in spec.fields
    ]
    # Not materialised: columns that a statement does not read are not computed.
    batch = f"batch AS NOT MATERIALIZED (SELECT {', '.join(columns)} FROM {relation})"
    statements = []
    for statement in spec.statements:
        own_with = _WITH.match(statement)
        rest = own.escaped(statement[own_with.end() :] if own_with else statement)
        recursive = "RECURSIVE " if own_with and own_with[1] else ""
        statements.append(f"WITH {recursive}{batch}{', ' if own_with else ' '}{rest}")
    return statements
