"""What happens to events inside the transaction, for each kind of projection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Protocol

from holdfast.core.codec import EventTypes
from holdfast.core.errors import Fenced, StoreUnavailable
from holdfast.core.event import Event, RawEvent
from holdfast.core.ports import Checkpoint, RowChange, Session, TransactionEnded, Work
from holdfast.core.projection import DELETE, Definition, Handler, TableProjection
from holdfast.core.table import Key, TableSpec

MAX_CACHED_ROWS = 50_000


class EventFailed(Exception):
    """One event could not be applied; everything before it is committed."""

    def __init__(self, event: RawEvent, error: BaseException) -> None:
        super().__init__(event, error)
        self.event, self.error = event, error


class BatchRefused(Exception):
    """What the events together left in the rows can't be stored; one of them is to blame."""


class StoreFailedAt(Exception):
    """The store failed in an event's handler: whose fault it is shows when it happens again."""

    def __init__(self, event: RawEvent, error: StoreUnavailable) -> None:
        super().__init__(event, error)
        self.event, self.error = event, error


class Engine(Protocol):
    """Runs events of one kind of projection inside a transaction."""

    def run(
        self, checkpoint: Checkpoint, /, events: Sequence[RawEvent], enough: Callable[[], bool]
    ) -> AbstractContextManager[tuple[Work, int]]:
        """Yields the open transaction and the number of events that are in it (at least one)."""

    def committed(self) -> None:
        """The transaction is in."""

    def forget(self) -> None:
        """The transaction is not in: drop whatever was kept from it."""


class HandlerEngine:
    """Calls handlers inside the transaction."""

    def __init__(
        self, definition: Definition, types: EventTypes, session: Session, caller: Caller
    ) -> None:
        self._definition, self._types = definition, types
        self._session, self._caller = session, caller

    @contextmanager
    def run(
        self, checkpoint: Checkpoint, /, events: Sequence[RawEvent], enough: Callable[[], bool]
    ) -> Iterator[tuple[Work, int]]:
        with self._session.transaction() as work:
            # A runner that was deposed while it slept must not even begin a side effect.
            self._session.check_epoch(checkpoint)
            done = 0
            with work.handling() as tx:
                for raw in events:
                    try:
                        handler = self._definition.handler_of(raw.type)
                        if handler is not None:
                            self._caller.call(handler, self._types.decode(raw), tx)
                            work.check_intact()
                    except BaseException as error:
                        raise _blamed(raw, error, self._session) from error
                    done += 1
                    if enough():
                        break
            yield work, done

    def committed(self) -> None:
        """Nothing is kept between batches."""

    def forget(self) -> None:
        """Nothing is kept between batches."""


@dataclass(slots=True)
class _CachedRow:
    """`row` None: the table has no such row. `position`: the last event it has seen."""

    row: Any | None
    position: int
    stored: bool


_Decoded = tuple[Handler, Key, Event[Any]]


class TableEngine:
    """Loads the rows a batch needs, folds in memory, writes each changed row once.

    Rows stay cached between batches. That is safe while the epoch is ours: nobody else can write.
    """

    def __init__(
        self,
        definition: Definition,
        types: EventTypes,
        session: Session,
        caller: Caller,
        table: TableSpec,
    ) -> None:
        self._definition, self._types = definition, types
        self._session, self._caller, self._table = session, caller, table
        self._rows: dict[Key, _CachedRow] = {}
        self._changed: dict[Key, _CachedRow] = {}
        projection = definition.instance
        assert isinstance(projection, TableProjection)
        self._key = projection.key
        self._by_stream = type(projection).key is TableProjection.key

    @contextmanager
    def run(
        self, _: Checkpoint, /, events: Sequence[RawEvent], enough: Callable[[], bool]
    ) -> Iterator[tuple[Work, int]]:
        decoded: Iterable[_Decoded | None]
        if self._by_stream:
            # The keys are known beforehand, so that no event lives longer than its turn.
            handles = self._definition.handles
            self._load({(raw.stream,) for raw in events if handles(raw.type)})
            decoded = map(self._decode, events)
        else:
            decoded = [self._decode(raw) for raw in events]
            self._load({item[1] for item in decoded if item is not None})
        done = 0
        for raw, item in zip(events, decoded, strict=True):
            if item is not None:
                try:
                    self._fold(*item)
                except BaseException as error:
                    raise _blamed(raw, error, self._session) from error
            done += 1
            if enough():
                break
        try:
            writes = [
                self._change(key, cached)
                for key, cached in self._changed.items()
                if cached.row is not None
            ]
        except ValueError as error:
            raise BatchRefused from error
        deletes = [key for key, c in self._changed.items() if c.row is None and c.stored]
        with self._session.transaction() as work:
            if writes:
                work.write_rows(self._table, writes)
            if deletes:
                work.delete_rows(self._table, deletes)
            yield work, done

    def committed(self) -> None:
        for cached in self._changed.values():
            cached.stored = cached.row is not None
        self._changed.clear()
        while len(self._rows) > MAX_CACHED_ROWS:
            self._rows.pop(next(iter(self._rows)))

    def forget(self) -> None:
        self._rows.clear()
        self._changed.clear()

    def _decode(self, raw: RawEvent) -> _Decoded | None:
        try:
            handler = self._definition.handler_of(raw.type)
            if handler is None:
                return None
            event = self._types.decode(raw)
            if self._by_stream:
                return handler, (raw.stream,), event
            key = self._key(event)
            if key is None:
                return None
            return handler, self._table.check_key(key if isinstance(key, tuple) else (key,)), event
        except BaseException as error:
            raise _blamed(raw, error, self._session) from error

    def _load(self, keys: set[Key]) -> None:
        missing = [key for key in keys if key not in self._rows]
        stored = self._session.load_rows(self._table, missing) if missing else {}
        for key in missing:
            if found := stored.get(key):
                self._rows[key] = _CachedRow(self._table.row(found[0]), found[1], stored=True)
            else:
                self._rows[key] = _CachedRow(None, 0, stored=False)

    def _change(self, key: Key, cached: _CachedRow) -> RowChange:
        values = self._table.values(cached.row)
        if tuple([values[i] for i in self._table.key_indexes]) != key:
            raise ValueError(
                f"a handler changed the key of row {key!r} of table {self._table.name!r}; return "
                "DELETE instead, and let key() choose the row"
            )
        return RowChange(values, cached.position)

    def _fold(self, handler: Handler, key: Key, event: Event[Any]) -> None:
        cached = self._rows[key]
        if event.position <= cached.position:
            return  # The row has seen this event: the checkpoint was wound back.
        row = self._table.new_row(key) if cached.row is None else cached.row
        result = self._caller.call(handler, row, event)
        if result is DELETE:
            cached.row = None
        elif result is None:
            cached.row = row
        elif isinstance(result, self._table.row_type):
            cached.row = result
        else:
            raise TypeError(
                f"a handler of a TableProjection returns None, a {self._table.row_type.__name__} "
                f"or DELETE, not {type(result).__name__}"
            )
        if cached.row is not None:
            self._table.settle(cached.row)
        cached.position = event.position
        self._changed[key] = cached


class Caller:
    """Calls handlers; coroutines run on an event loop of the runner's own."""

    def __init__(self) -> None:
        self._loop: asyncio.Runner | None = None

    def call(self, handler: Handler, *args: Any) -> Any:
        result = handler(*args)
        if not isinstance(result, CoroutineType):
            return result
        if self._loop is None:
            self._loop = asyncio.Runner()
        # The context of now, not of the loop's first run: it says which transaction this is.
        return self._loop.run(result, context=copy_context())

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


def _blamed(raw: RawEvent, error: BaseException, session: Session) -> Exception:
    """What a handler's exception means: the event's failure, or the store's."""
    if isinstance(error, Fenced | TransactionEnded):
        return error
    unavailable = session.unavailable(error)
    return EventFailed(raw, error) if unavailable is None else StoreFailedAt(raw, unavailable)
