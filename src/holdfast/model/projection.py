"""What to do with events: the classes that users write."""

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


class _Delete:
    """The type of DELETE."""

    def __repr__(self) -> str:
        return "DELETE"


DELETE = _Delete()
"""Returned by a TableProjection's handler: delete this row."""


class Tx(Protocol):
    """The transaction that a handler works in; it commits with the checkpoint, or not at all.

    SQL is in the database's own parameter style: `?` on SQLite, `%s` on PostgreSQL.
    """

    @property
    def connection(self) -> Any:
        """The driver's own connection, inside the transaction.

        Don't commit or roll back, and leave it as it was: SET LOCAL instead of SET, a cursor of
        your own instead of other settings, no DEALLOCATE.
        """

    def execute(self, sql: str, params: Any = ()) -> int:
        """Runs one statement and returns the number of rows it changed."""

    def executemany(self, sql: str, params: typing.Iterable[Any]) -> None:
        """Runs one statement once for each set of parameters."""

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""

    def write(self, sql: str, params: Any = ()) -> None:
        """Runs one statement whose result nobody looks at.

        On PostgreSQL the handler does not wait for it. It is done before the next statement that
        is waited for, and before the commit. If it fails, the event fails: at that next statement,
        or after the handler has returned.
        """

    def after_commit(self, callback: Callable[[], Any]) -> None:
        """Calls `callback`, def or async def, once the transaction is in, and never if it is not.

        It happens at most once: a process that dies in between never makes the call. What it
        raises is logged, and changes nothing.
        """


class Projection:
    """Handlers that get the event and the transaction, for any SQL.

    `tables` maps each table that the projection owns to its DDL in the database's dialect, or to
    a dataclass read as in TableProjection. They are created before the first event, and emptied
    by `holdfast reset`. A handler is `@on(…) def name(self, event, tx)`, or `async def`.
    """

    tables: ClassVar[Mapping[str, str | type]] = {}

    replayable: ClassVar[bool] = False
    """The handlers may see events again: they write the same rows, or nothing, the second time."""

    calls_out: ClassVar[bool] = False
    """The handlers call other systems. In outbox delivery each event then has a transaction of its
    own, which begins with the first use of `tx`; otherwise those of quick handlers share one."""

    def lane(self, event: Event[Any]) -> str:
        """What must keep its order when an event fails: by default, the stream."""
        return event.stream


class Publisher(Projection):
    """Passes events on, as they are stored, to another system that acknowledges them later.

    A handler is `@on(…) def name(self, event, publish)`. No transaction is open while it runs.
    """

    def batch(self) -> AbstractContextManager[Callable[[RawEvent], None]]:
        """The block in which the events of one transaction are published, by what it gives.

        When it ends well, all of them are acknowledged; only then is anything committed. When it
        ends with an error, what is not acknowledged is given up: those events come again.

        The function raises EventFailed where its event is to blame: then the policy decides. Both
        it and the end of the block raise StoreUnavailable where nobody is: the events come again
        later, as Poll says. And BatchRefused where one of the events is to blame, and it is not
        known which: they come again at once, and if that does not show it, fewer together.
        Whatever else is raised stops the projection.
        """
        raise NotImplementedError


class SqlProjection(Projection):
    """A read model that the database keeps by itself: no event moves through Python.

    `sql` is one statement, or several, that each read the relation `batch`: the events of these
    types that come next, with the journal's columns (`position`, `stream`, `version`, `id`, `type`,
    `data`, `metadata`, `recorded_at`) and one for each field of the event classes in `events`, of
    the field's own type. A field whose name is one of the journal's has `data_` before it. Fields
    of types that are listed by name are read with the database's JSON operators; so are those that
    two classes declare differently, which have no column.

    All statements of a batch, and the checkpoint, are one transaction. A batch has one event or
    many thousands, and the rows must not depend on where one ends. When the database refuses one,
    the event that is to blame is found by halving, and goes to the policy alone; batches leave out
    the events of its stream then, which wait behind it.
    """

    events: ClassVar[tuple[type | str, ...]] = ()
    """The event classes or type names that `batch` has; `("*",)` for all."""

    sql: ClassVar[str | tuple[str, ...]] = ""


class TableProjection(Generic[R]):
    """Folds events into the rows of one table.

    A handler is `@on(…) def name(self, row, event)`, or `async def`. It changes the row in place,
    or returns another one with the same key, or returns DELETE. A row that is not there yet begins
    with its key and the defaults of the other fields.
    """

    key_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that make the key; empty: the row type's first field."""

    def key(self, event: Event[Any]) -> Any:
        """The key of the row that `event` belongs to: one value, or a tuple for several fields.

        None means that the event belongs to no row and is passed over.
        """
        return event.stream


def on(*types: type | str) -> Callable[[F], F]:
    """Marks a handler for these event classes or type names; `on("*")` takes all the others."""
    if not types:
        raise ConfigError('@on needs at least one event class or type name; @on("*") takes all')
    for item in types:
        if not isinstance(item, type | str):
            raise ConfigError(f"@on({item!r}): give event classes or type names")

    def mark(function: F) -> F:
        function.__holdfast_on__ = (*types, *marks_of(function))  # type: ignore[attr-defined]
        return function

    return mark


def marks_of(function: Any) -> tuple[type | str, ...]:
    """The types given to @on, also where a classmethod or staticmethod hides them."""
    inner = getattr(function, "__func__", None)
    marks: tuple[type | str, ...] = getattr(
        function, "__holdfast_on__", getattr(inner, "__holdfast_on__", ())
    )
    return marks
