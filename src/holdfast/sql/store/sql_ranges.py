"""A SqlProjection's statements on one connection: what `batch` is, and how a stretch is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model.event import RawEvent
from holdfast.model.sql_spec import JOURNAL_COLUMNS, PayloadField, SqlSpec
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.transaction import HandlerTx
from holdfast.sql import event_ranges
from holdfast.sql.database import Connection, Database, quote
from holdfast.sql.postgres.column_types import TYPES
from holdfast.sql.store.checkpoints import of

_WITH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE | re.DOTALL)

WAITING_EVENTS = 100
"""Events of closed lanes that are read at a time."""

FEW_TYPES = 8
"""SQLite looks IN up in a tree, which takes longer than to compare with so many values."""


class SqlRangeStatements:
    """The statements of one SqlProjection, run on a runner's connection."""

    def __init__(
        self, database: Database, connection: Callable[[], Connection], spec: SqlSpec
    ) -> None:
        """`connection`: the session's, which is not always the same."""
        self._database, self._connection = database, connection
        self._types = {f"type_{n}": name for n, name in enumerate(spec.types or ())}
        own = DIALECTS[database.dialect]
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

    def between(self, after: int, through: int) -> EventRange:
        return event_ranges.between(self._connection(), after, through)

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


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a database writes what differs."""

    parameter: Callable[[str], str]
    escaped: Callable[[str], str]
    """A user's SQL in a statement with parameters."""
    column: Callable[[PayloadField], str]
    is_one_of: Callable[[str, Sequence[str]], str]
    """Whether a column has one of these values."""
    one: str
    """One event, given by parameters, as a relation."""
    events: str
    """The columns of events to be read."""


def _statements(spec: SqlSpec, own: _Dialect, relation: str) -> list[str]:
    """A user's statements with `batch` before each, made from a relation `e` like the journal."""
    columns = [f"e.{name}" for name in JOURNAL_COLUMNS]
    columns += [
        f"{own.column(field)} AS {own.escaped(quote(field.column))}" for field in spec.fields
    ]
    # Not materialised: what a statement does not read of it is not computed.
    batch = f"batch AS NOT MATERIALIZED (SELECT {', '.join(columns)} FROM {relation})"
    statements = []
    for statement in spec.statements:
        own_with = _WITH.match(statement)
        rest = own.escaped(statement[own_with.end() :] if own_with else statement)
        recursive = "RECURSIVE " if own_with and own_with[1] else ""
        statements.append(f"WITH {recursive}{batch}{', ' if own_with else ' '}{rest}")
    return statements


def _text(value: str) -> str:
    """A text in a statement."""
    return "'" + value.replace("'", "''") + "'"


def _postgres_column(field: PayloadField) -> str:
    key = _text(field.key).replace("%", "%%")
    if field.kind == "JSON":
        return f"e.data -> {key}"
    return f"CAST(e.data ->> {key} AS {TYPES[field.kind]})"


def _sqlite_column(field: PayloadField) -> str:
    path = '$."' + field.key + '"'
    return f"json_extract(e.data, {_text(path)})"


def _is_in(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(values)})"


def _sqlite_is_one_of(column: str, values: Sequence[str]) -> str:
    if len(values) > FEW_TYPES:
        return _is_in(column, values)
    return f"CASE {column} {' '.join(f'WHEN {value} THEN true' for value in values)} END"


_POSTGRES_ONE: Mapping[str, str] = {
    "position": "bigint",
    "stream": "text",
    "version": "bigint",
    "id": "uuid",
    "type": "text",
    "data": "json",
    "metadata": "json",
    "recorded_at": "timestamptz",
}

DIALECTS: Mapping[str, _Dialect] = {
    "postgres": _Dialect(
        parameter=lambda name: f"%({name})s",
        escaped=lambda sql: sql.replace("%", "%%"),
        column=_postgres_column,
        is_one_of=_is_in,
        # OFFSET: else values become constants, and are cast before WHERE is looked at.
        one="SELECT "
        + ", ".join(f"CAST(%({n})s AS {type_}) AS {n}" for n, type_ in _POSTGRES_ONE.items())
        + " OFFSET 0",
        events="e.position, e.stream, e.version, CAST(e.id AS text), e.type, "
        "CAST(e.data AS text), CAST(e.metadata AS text), e.recorded_at",
    ),
    "sqlite": _Dialect(
        parameter=lambda name: f":{name}",
        escaped=lambda sql: sql,
        column=_sqlite_column,
        is_one_of=_sqlite_is_one_of,
        one="SELECT " + ", ".join(f":{name} AS {name}" for name in JOURNAL_COLUMNS),
        events=", ".join(f"e.{name}" for name in JOURNAL_COLUMNS),
    ),
}
