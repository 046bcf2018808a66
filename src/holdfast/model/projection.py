"""The base classes of projections, which users derive from."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from holdfast.errors import ConfigError
from holdfast.model.event import Event, RawEvent

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

Handler = Callable[..., Any]
"""A bound handler; it may return a coroutine."""

CATCH_ALL = "*"
"""The type name of a handler for all other types."""


class _Delete:
    """The type of DELETE."""

    def __repr__(self) -> str:
        return "DELETE"


DELETE = _Delete()
"""Returned by a TableProjection's handler: delete this row."""


class Tx(Protocol):
    """The handler's transaction. It commits together with the checkpoint, or not at all.

    SQL is in the database's own parameter style: `?` on SQLite, `%s` on PostgreSQL.
    """

    @property
    def connection(self) -> Any:
        """The driver's connection, inside the transaction.

        Don't commit or roll back, and don't change its settings: use SET LOCAL instead of SET and a
        cursor of your own, and no DEALLOCATE.
        """

    def execute(self, sql: str, params: Any = ()) -> int:
        """Runs one statement and returns the number of rows it changed."""

    def executemany(self, sql: str, params: typing.Iterable[Any]) -> None:
        """Runs one statement once for each set of parameters."""

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""

    def write(self, sql: str, params: Any = ()) -> None:
        """Runs one statement without a result.

        On PostgreSQL the handler does not wait for it: it is done before the next statement with a
        result, and before the commit. If it fails, the event fails: at that next statement, or
        after the handler has returned.
        """

    def after_commit(self, callback: Callable[[], Any]) -> None:
        """Calls `callback`, def or async def, after the commit, and never after a rollback.

        It is called at most once: not at all if the process dies in between. Its error is logged,
        and changes nothing.
        """


class Projection:
    """Handlers that get the event and the transaction, for any SQL.

    `tables` maps the name of each table that the projection owns to its DDL in the database's
    dialect, or to a dataclass as in TableProjection. Tables are created before the first event, and
    emptied by `holdfast reset`. A handler is `@on(…) def name(self, event, tx)`, or `async def`.

    `started(self)` and `stopped(self)`, if there are such methods, open and close clients that the
    handlers use: they are called in each process before the first event and after the last.
    """

    tables: ClassVar[Mapping[str, str | type]] = {}

    replayable: ClassVar[bool] = False
    """Handlers may get an event again: the second time they write the same rows, or nothing."""

    calls_out: ClassVar[bool] = False
    """Handlers call other systems. In outbox delivery each event then has its own transaction,
    which begins with the first use of `tx`; otherwise several events share one."""

    def lane(self, event: Event[Any]) -> str:
        """The lane of an event; by default its stream. Lanes keep their order in failures."""
        return event.stream

    def clear(self, tx: Tx) -> Any:
        """Clears what it has written to tables that are not its own, as part of a reset.

        In one transaction with the reset, which may be tried again. May be async def.
        """


class Publisher(Projection):
    """Publishes events, as they are stored, to another system that acknowledges them later.

    A handler is `@on(…) def name(self, event, publish)`. No transaction is open while it runs.
    """

    def batch(self) -> AbstractContextManager[Callable[[RawEvent], None]]:
        """The block in which the events of one transaction are published; yields the function.

        At the end of the block all of them are acknowledged; only then is anything committed. If
        the block raises, events that are not acknowledged come again.

        The function raises EventFailed if its event is to blame: then the policy decides. Both the
        function and the end of the block raise StoreUnavailable if no event is to blame: the events
        come again later, as Poll says. They raise BatchRefused if it is not known which event is to
        blame: the events come again at once, and then in smaller batches. Any other error stops the
        projection.
        """
        raise NotImplementedError


class SqlProjection(Projection):
    """A read model that the database maintains by SQL: no event moves through Python.

    `sql` is one statement or several. Each reads the relation `batch`: the next events of the types
    in `events`, with the journal's columns (`position`, `stream`, `version`, `id`, `type`, `data`,
    `metadata`, `recorded_at`), and a column for each field of the event classes in `events`, with
    the field's type. A field with the name of a journal column has the prefix `data_`. There is no
    column for fields of types listed by name, and for fields that two classes declare differently:
    read those with the database's JSON operators.

    All statements of a batch, and the checkpoint, are one transaction. A batch has one event or
    many thousands, and the rows must not depend on where one ends. If the database refuses a batch,
    the event to blame is found by halving, and the policy decides on it alone; later events of its
    stream wait behind it.
    """

    events: ClassVar[tuple[type | str, ...]] = ()
    """The event classes or type names in `batch`; `("*",)` for all."""

    sql: ClassVar[str | tuple[str, ...]] = ""


class TableProjection(Generic[R]):
    """Folds events into the rows of one table.

    A handler is `@on(…) def name(self, row, event)`, or `async def`. It changes the row in place,
    returns another row with the same key, or returns DELETE. A new row has its key, and defaults in
    the other fields. `started(self)` and `stopped(self)` are as in Projection.
    """

    key_fields: ClassVar[tuple[str, ...]] = ()
    """The fields of the key; empty: the row type's first field."""

    def key(self, event: Event[Any]) -> Any:
        """The key of the row that `event` belongs to: one value, or a tuple for several fields.

        None: the event belongs to no row, and is passed over.
        """
        return event.stream

    def clear(self, tx: Tx) -> Any:
        """Clears what depends on its table, such as tables of others, as part of a reset.

        In one transaction with the reset, which may be tried again. May be async def.
        """


def on(*types: type | str) -> Callable[[F], F]:
    """Marks a handler for these event classes or type names; `on("*")` takes all the others."""
    if not types:
        raise ConfigError('@on needs at least one event class or type name; @on("*") takes all')
    for item in types:
        if not isinstance(item, type | str):
            raise ConfigError(f"@on({item!r}): give event classes or type names")

    def mark(function: F) -> F:
        function.__holdfast_on__ = (*types, *handled_types(function))  # type: ignore[attr-defined]
        return function

    return mark


def handled_types(function: Any) -> tuple[type | str, ...]:
    """The types given to @on, also those of a wrapped classmethod or staticmethod."""
    inner = getattr(function, "__func__", None)
    types: tuple[type | str, ...] = getattr(
        function, "__holdfast_on__", getattr(inner, "__holdfast_on__", ())
    )
    return types


def hook_of(projection: object, name: str) -> Callable[[], Any] | None:
    """The method `started` or `stopped` of a projection, unless it is a handler."""
    found: Callable[[], Any] | None = getattr(projection, name, None)
    return None if found is None or handled_types(found) else found
