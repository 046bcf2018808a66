"""Folding events into rows: load the rows a batch needs, fold in memory, write each once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from holdfast.model.definition import Definition
from holdfast.model.event import Event, RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.foreign_feed import ForeignFeed
from holdfast.model.lane import unknown_lane
from holdfast.model.projection import DELETE, Handler, TableProjection
from holdfast.model.row_codegen import other_key
from holdfast.model.row_type import Key, TableSpec, lane_text
from holdfast.runtime.engines.engine import BatchRefused, Calls, EventFailed, Ran, StoreFailedAt
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.engines.row_cache import CachedRow, RowCache
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import RowChanges, Transaction

_Decoded = tuple[Handler, Key, Event[Any]]


class TableEngine:
    """Loads the rows a batch needs, folds in memory, writes each changed row once.

    Rows stay cached between batches. That is safe while the epoch is ours: nobody else can write,
    but for another feed that has the same stream, and then versions say so (see ledger.py).
    """

    def __init__(
        self,
        definition: Definition,
        types: EventTypes,
        session: Session,
        caller: Invoker,
        projection: TableProjection[Any],
        table: TableSpec,
    ) -> None:
        self._session, self.table = session, table
        self.calls = Calls(definition, types, session, caller)
        self.cache = RowCache(table)
        self._key = projection.key
        self.by_stream = type(projection).key is TableProjection.key
        self.order = _order(definition.foreign)
        self.tells = definition.foreign is None or definition.foreign.contiguous
        """Whether a row can tell that it has seen an event."""
        self._has_all = definition.foreign is None
        """Whether each stream comes from its beginning, and from nowhere else."""
        self._began_empty: bool | None = None
        """Whether the table was empty, and only events of the feed were applied since.

        None: nobody has looked.
        """

    @contextmanager
    def batch(
        self,
        _: Checkpoint | None,
        work: Transaction | None,
        *,
        again: bool,
        singly: bool,
    ) -> Iterator[TableBatch]:
        if again:
            self._began_empty = None  # What is in the queue may be before what comes in the feed.
        yield TableBatch(self, work, again=again, singly=singly)

    def committed(self) -> Sequence[Function]:
        self.cache.committed()
        return ()

    def forget(self) -> None:
        self.cache.forget()
        self._began_empty = None  # It may go on from somewhere else.

    def drop(self, streams: Iterable[str]) -> None:
        self.cache.drop(streams)

    @contextmanager
    def written(self, work: Transaction | None) -> Iterator[Transaction]:
        """The transaction, `work` or a new one, with the changed rows in it."""
        writes, deletes = self._writes(), self._deletes()
        with nullcontext(work) if work else self._session.transaction() as work:
            if writes:
                work.write_rows(self.table, writes)
            if deletes:
                work.delete_rows(self.table, deletes)
            yield work

    def advance(self, work: Transaction | None, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Writes the changed rows with the checkpoint, and commits where there is no `work`."""
        if work is None and not self._deletes():
            writes = self._writes()
            return self._session.advance(checkpoint, to, (self.table, writes) if writes else None)
        with self.written(work) as work:
            return work.advance(checkpoint, to)

    def _writes(self) -> RowChanges | None:
        """The changed rows in the order of their keys.

        Neighbours in the table are quicker to write together, and feeds that write the same rows
        don't wait for each other in a circle.
        """
        written = [cached for cached in self.cache.changed if cached.row is not None]
        if not written:
            return None
        written.sort(key=_key_of)
        try:
            changes = self.changes(written)
        except ValueError as error:
            raise BatchRefused from error
        self.cache.writing(written, changes.columns)
        return changes

    def _deletes(self) -> list[Key]:
        return [c.key for c in self.cache.changed if c.row is None and c.stored]

    def begin_streams(self, streams: Collection[str]) -> None:
        """Makes known that streams whose first event has come have no rows, where that is certain.

        The table was empty, nobody else writes it, and what is in it by now is of streams that have
        begun before. Then nothing need be looked up for them.
        """
        if not (streams and self._has_all):
            return
        if self._began_empty is None:
            self._began_empty = not self._session.has_rows(self.table)
        if self._began_empty:
            for stream in streams:
                self.cache.put(stream, CachedRow((stream,), None, 0, False))

    def load(self, missing: Mapping[Any, Key]) -> None:
        """Loads rows, by what they are known by."""
        stored = self._session.load_rows(self.table, [*missing.values()]) if missing else {}
        for name, key in missing.items():
            if found := stored.get(key):
                values, guard = found
                row = self.table.row(values)
                self.cache.put(name, CachedRow(key, row, guard, True, guard), values)
            else:
                self.cache.put(name, CachedRow(key, None, 0, False))

    def decode(self, event: RawEvent) -> _Decoded | None:
        """The handler, the row's key and the event; None if it belongs to no row."""
        handler = self.calls.definition.handler_of(event.type)
        if handler is None:
            return None
        decoded = self.calls.types.decode(event)
        key = self._key(decoded)
        if key is None:
            return None
        return handler, self.table.check_key(key if isinstance(key, tuple) else (key,)), decoded

    def changes(self, changed: Sequence[CachedRow]) -> RowChanges:
        """Rows as they are written; raises ValueError if they can't be."""
        columns = self.table.checked([cached.row for cached in changed])
        for cached, own in zip(changed, self._keys_of(columns), strict=True):
            if cached.key != own:
                raise other_key(self.table.name, cached.key)
        return RowChanges(columns, [cached.position for cached in changed])

    def check(self, key: Key, row: Any) -> None:
        """Raises ValueError if a row can't be written."""
        self.changes([CachedRow(key, row, 0, False)])

    def _keys_of(self, columns: Sequence[Sequence[Any]]) -> Iterable[Key]:
        return zip(*(columns[i] for i in self.table.key_indexes), strict=True)


class _LoadFailed(Exception):
    """Rows can't be loaded, those of many events: none of them is to blame."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


_key_of = attrgetter("key")


def _order(intake: ForeignFeed | None) -> Callable[[Event[Any], int], int] | None:
    """What tells whether a row has seen an event, 0 where nothing does; None: its position.

    From the event, and from what the row has.
    """
    if intake is None:
        return None
    if not intake.contiguous:
        return lambda _, base: base + 1
    return lambda event, _: 0 if event.type in intake.unnumbered else event.version


class TableBatch:
    """Events being folded into rows."""

    def __init__(
        self, engine: TableEngine, work: Transaction | None, *, again: bool, singly: bool
    ) -> None:
        self._engine, self._table, self._work = engine, engine.table, work
        self._again, self._singly = again, singly
        self._expected: Sequence[RawEvent] = ()
        self._decoded: dict[int, _Decoded | EventFailed | StoreFailedAt | Exception | None] = {}

    def expect(self, events: Sequence[RawEvent]) -> None:
        self._expected = events
        self._engine.cache.expect(events)
        if not self._engine.by_stream:
            self._decode(events)

    def _loaded(self, name: Any) -> CachedRow:
        """A row, loaded with others that are wanted by the events that are expected."""
        engine, rows = self._engine, self._engine.cache.rows
        try:
            wanted = self._streams() if engine.by_stream else self._keys()
            if name in wanted:  # It comes first: there may be no room for all.
                wanted = {name: wanted.pop(name), **wanted}
            engine.load(dict(islice(wanted.items(), engine.cache.most_loaded)))
        except BaseException as error:
            raise _LoadFailed(error) from error
        return rows[name]

    def _streams(self) -> dict[Any, Key]:
        """The streams whose rows are wanted and not here."""
        definition, rows = self._engine.calls.definition, self._engine.cache.rows
        handlers, takes_all = definition.handlers, definition.catch_all is not None
        wanted = [
            e for e in self._expected if e.stream not in rows and (takes_all or e.type in handlers)
        ]
        if not self._again:  # What was in the queue may be older than its row.
            self._engine.begin_streams([e.stream for e in wanted if e.version == 1])
        return {e.stream: (e.stream,) for e in wanted if e.stream not in rows}

    def _keys(self) -> dict[Any, Key]:
        """The same where keys are not streams."""
        rows = self._engine.cache.rows
        keys = [item[1] for item in self._decoded.values() if isinstance(item, tuple)]
        return {key: key for key in keys if key not in rows}

    def _decode(self, events: Sequence[RawEvent]) -> None:
        """Decodes events ahead, for their rows' keys. What fails is raised in its turn."""
        self._decoded.clear()
        for event in events:
            try:
                item = self._engine.decode(event)
            except BaseException as error:
                failed = self._engine.calls.blamed(event, error)
                failed.__cause__ = error
                self._decoded[event.position] = failed
            else:
                self._decoded[event.position] = item

    def lane_of(self, event: RawEvent) -> str:
        if self._engine.by_stream:
            return event.stream
        item = self._decoded.get(event.position)
        return lane_text(item[1]) if isinstance(item, tuple) else unknown_lane(event.stream)

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        ran = self._run((event,), instead)
        if ran.failed is not None:
            raise ran.failed from ran.failed.error
        return ran.has_applied

    def run(self, events: Iterable[RawEvent]) -> Ran:
        return self._run(events, None)

    def _run(self, events: Iterable[RawEvent], instead: Function | None) -> Ran:
        """Every event comes through this loop: what it needs is at hand."""
        engine, calls = self._engine, self._engine.calls
        rows, changed_rows, order_of = engine.cache.rows, engine.cache.changed, engine.order
        handlers, decode = calls.definition.handlers, calls.types.decode
        by_stream, tells = engine.by_stream, engine.tells and not self._again
        new_row, fold, given = self._table.new_row, self._table.fold, self._given
        check: Callable[[Any], None] | None = None
        has_applied = False
        for raw in events:
            try:
                if by_stream:
                    handler = handlers.get(raw.type) or calls.definition.handler_of(raw.type)
                    if handler is None:
                        continue
                    event = decode(raw)
                    cached = rows.get(raw.stream) or self._loaded(raw.stream)
                else:
                    found = self._found(raw)
                    if found is None:
                        continue
                    handler, key, event = found
                    cached = rows.get(key) or self._loaded(key)
                order = raw.position if order_of is None else order_of(event, cached.base)
                if order <= cached.position and tells and order:
                    has_applied = True
                    continue  # The row has seen this event: the checkpoint was wound back.
                if instead is not None:
                    handler = instead
                if calls.is_limited:
                    handler = partial(calls.call, raw.type, handler)
                if self._singly:
                    check = partial(engine.check, cached.key)
                row = cached.row
                if row is None:
                    cached.row = fold(new_row(cached.key), True, handler, event, given, check)
                elif (left := fold(row, False, handler, event, given, check)) is not row:
                    cached.row = left
                if order > cached.position:
                    cached.position = order
                if not cached.is_changed:
                    cached.is_changed = True
                    changed_rows.append(cached)
                has_applied = True
            except BaseException as error:
                return Ran(has_applied, self._failure(raw, error))
        return Ran(has_applied)

    def _failure(self, event: RawEvent, error: BaseException) -> EventFailed:
        """How an event has failed; raises what is not its own failure."""
        if isinstance(error, _LoadFailed):
            raise error.error
        if isinstance(error, EventFailed):
            return error
        if isinstance(error, StoreFailedAt):
            raise error
        failed = self._engine.calls.blamed(event, error)
        if failed is not error:
            failed.__cause__ = error
        if isinstance(failed, EventFailed):
            return failed
        raise failed

    def _found(self, event: RawEvent) -> _Decoded | None:
        """What was decoded ahead."""
        found = self._decoded[event.position]
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def is_full(self) -> bool:
        return self._engine.cache.is_full

    def finished(self) -> AbstractContextManager[Transaction]:
        return self._engine.written(self._work)

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        return self._engine.advance(self._work, checkpoint, to)

    def _given(self, row: Any, result: Any) -> Any | None:
        """The row that a handler has left, by what it has returned; None for its deletion."""
        result = self._engine.calls.settle(result)
        if result is None:
            return row
        if result is DELETE:
            return None
        if not isinstance(result, self._table.row_type):
            raise TypeError(
                "a handler of a TableProjection returns None, a "
                f"{self._table.row_type.__name__} or DELETE, not {type(result).__name__}"
            )
        return result
