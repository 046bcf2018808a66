"""Folds events into rows: loads the rows a batch needs, folds in memory, writes each row once."""

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
from holdfast.model.rows.row_codegen import key_changed
from holdfast.model.rows.row_type import Key, TableSpec, lane_text
from holdfast.runtime.engines.engine import BatchRefused, EventFailed, Ran, StoreFailedAt, blame
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.engines.row_cache import CachedRow, RowCache
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import RowChanges, Transaction

_Decoded = tuple[Handler, Key, Event[Any]]

_key_of = attrgetter("key")


class TableEngine:
    """Folds events into rows of one table.

    Rows stay cached between batches. That is safe while the epoch is ours: nobody else can write,
    except a runner on another feed that has the same stream, and then the stream's version says so
    (see apply/deduplicate.py).
    """

    def __init__(
        self,
        definition: Definition,
        types: EventTypes,
        session: Session,
        invoker: Invoker,
        limits: RuntimeLimits,
        projection: TableProjection[Any],
        table: TableSpec,
    ) -> None:
        self.definition, self.types, self.session = definition, types, session
        self.invoker, self.table = invoker, table
        self.cache = RowCache(table, limits)
        self._key = projection.key
        self.by_stream = definition.lanes_are_streams
        foreign = definition.foreign
        self.order = _order(foreign)
        self.rows_know_events = foreign is None or foreign.versions_only_grow
        """Whether a row can tell that it has seen an event."""
        self._has_whole_streams = foreign is None
        """Whether each stream comes from its beginning, and from nowhere else."""
        self._began_empty: bool | None = None
        """Whether the table was empty, and only events of the feed were applied since.

        None: not known.
        """

    @contextmanager
    def batch(
        self,
        _: Checkpoint | None,
        transaction: Transaction | None,
        *,
        from_queue: bool,
        singly: bool,  # noqa: ARG002
    ) -> Iterator[TableBatch]:
        if from_queue:
            self._began_empty = None  # An event in the queue may be older than those of the feed.
        yield TableBatch(self, transaction, from_queue=from_queue)

    def committed(self) -> Sequence[Function]:
        self.cache.committed()
        return ()

    def forget(self) -> None:
        self.cache.forget()
        self._began_empty = None  # The runner may go on from another position.

    def drop(self, streams: Iterable[str]) -> None:
        self.cache.drop(streams)

    @contextmanager
    def written(self, transaction: Transaction | None) -> Iterator[Transaction]:
        """The transaction, or a new one, with the changed rows in it."""
        writes, deletes = self._writes(), self._deletes()
        with nullcontext(transaction) if transaction else self.session.transaction() as transaction:
            if writes is not None:
                transaction.write_rows(self.table, writes)
            if deletes:
                transaction.delete_rows(self.table, deletes)
            yield transaction

    def advance(
        self, transaction: Transaction | None, checkpoint: Checkpoint, to: Advance
    ) -> Checkpoint:
        """Writes the changed rows with the checkpoint; commits where no transaction is given."""
        if transaction is None and not self._deletes():
            writes = self._writes()
            rows = None if writes is None else (self.table, writes)
            return self.session.advance(checkpoint, to, rows)
        with self.written(transaction) as transaction:
            return transaction.advance(checkpoint, to)

    def _writes(self) -> RowChanges | None:
        """The changed rows in the order of their keys.

        Neighbours in the table are quicker to write together, and runners that write the same rows
        can't deadlock.
        """
        written = [cached for cached in self.cache.changed if cached.row is not None]
        if not written:
            return None
        written.sort(key=_key_of)
        try:
            changes = self._changes(written)
        except ValueError as error:
            raise BatchRefused from error
        self.cache.writing(written, changes.columns)
        return changes

    def _changes(self, changed: Sequence[CachedRow]) -> RowChanges:
        """Rows as they are written; raises ValueError if they can't be."""
        columns = self.table.checked([cached.row for cached in changed])
        keys = zip(*(columns[i] for i in self.table.key_indexes), strict=True)
        for cached, own in zip(changed, keys, strict=True):
            if cached.key != own:
                raise key_changed(self.table.name, cached.key)
        return RowChanges(columns, [cached.position for cached in changed])

    def _deletes(self) -> list[Key]:
        return [c.key for c in self.cache.changed if c.row is None and c.stored]

    def note_new_streams(self, streams: Collection[str]) -> None:
        """Notes that streams whose first event has come have no rows, where that is certain.

        The table was empty, nobody else writes it, and its rows are of streams that began before.
        Then nothing has to be looked up for these.
        """
        if not (streams and self._has_whole_streams):
            return
        if self._began_empty is None:
            self._began_empty = not self.session.has_rows(self.table)
        if self._began_empty:
            for stream in streams:
                self.cache.put(stream, CachedRow((stream,), None, 0, False))

    def load(self, missing: Mapping[Any, Key]) -> None:
        """Loads rows, by the names that the cache has for them."""
        stored = self.session.load_rows(self.table, [*missing.values()]) if missing else {}
        for name, key in missing.items():
            if found := stored.get(key):
                values, guard = found
                row = self.table.row(values)
                self.cache.put(name, CachedRow(key, row, guard, True, guard), values)
            else:
                self.cache.put(name, CachedRow(key, None, 0, False))

    def decode(self, event: RawEvent) -> _Decoded | None:
        """The handler, the row's key and the event; None if it belongs to no row."""
        handler = self.definition.handler_of(event.type)
        if handler is None:
            return None
        decoded = self.types.decode(event)
        key = self._key(decoded)
        if key is None:
            return None
        return handler, self.table.check_key(key if isinstance(key, tuple) else (key,)), decoded

    def call_within_limit(self, event_type: str, handler: Function, *args: Any) -> Any:
        """Calls a handler within the time limit of its event type, if that has one."""
        seconds = self.definition.policy_of(event_type).backoff.timeout_seconds
        if seconds is None:
            return self.invoker.call(handler, *args)
        return self.invoker.call_within(seconds, self.session.interrupt, handler, *args)


class _LoadFailed(Exception):
    """Rows of many events can't be loaded: none of these events is to blame."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def _order(foreign: ForeignFeed | None) -> Callable[[Event[Any], int], int] | None:
    """How an event's place in the order of its row is computed; None: it is the position.

    From the event and the row's stored guard; 0 where the order is unknown.
    """
    if foreign is None:
        return None
    if not foreign.versions_only_grow:
        return lambda _, base: base + 1
    return lambda event, _: 0 if event.type in foreign.unnumbered else event.version


class TableBatch:
    """Events being folded into rows."""

    def __init__(
        self, engine: TableEngine, transaction: Transaction | None, *, from_queue: bool
    ) -> None:
        self._engine, self._table, self._transaction = engine, engine.table, transaction
        self._from_queue = from_queue
        self._expected: Sequence[RawEvent] = ()
        self._decoded: dict[int, _Decoded | EventFailed | StoreFailedAt | Exception | None] = {}

    @property
    def is_full(self) -> bool:
        return self._engine.cache.is_full

    def expect(self, events: Sequence[RawEvent]) -> None:
        self._expected = events
        self._engine.cache.expect(events)
        if not self._engine.by_stream:
            self._decode(events)

    def lane_of(self, event: RawEvent) -> str:
        if self._engine.by_stream:
            return event.stream
        item = self._decoded.get(event.position)
        return lane_text(item[1]) if isinstance(item, tuple) else unknown_lane(event.stream)

    def run(self, events: Iterable[RawEvent]) -> Ran:
        return self._run(events, None)

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        ran = self._run((event,), instead)
        if ran.failed is not None:
            raise ran.failed from ran.failed.error
        return ran.has_applied

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        return self._engine.advance(self._transaction, checkpoint, to)

    def finished(self) -> AbstractContextManager[Transaction]:
        return self._engine.written(self._transaction)

    def _run(self, events: Iterable[RawEvent], instead: Function | None) -> Ran:
        """The loop of all events: what it needs is in local variables."""
        engine, definition = self._engine, self._engine.definition
        rows, changed_rows, order_of = engine.cache.rows, engine.cache.changed, engine.order
        handlers, decode = definition.handlers, engine.types.decode
        is_limited = definition.tuning.has_time_limits
        by_stream = engine.by_stream
        skips_seen = engine.rows_know_events and not self._from_queue
        new_row, fold, result_of = self._table.new_row, self._table.fold, self._result_of
        has_applied = False
        for raw in events:
            try:
                if by_stream:
                    handler = handlers.get(raw.type) or definition.handler_of(raw.type)
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
                if order <= cached.position and skips_seen and order:
                    has_applied = True
                    continue  # The row has seen this event: the checkpoint was wound back.
                if instead is not None:
                    handler = instead
                if is_limited:
                    handler = partial(engine.call_within_limit, raw.type, handler)
                row = cached.row
                if row is None:
                    cached.row = fold(new_row(cached.key), True, handler, event, result_of)
                elif (left := fold(row, False, handler, event, result_of)) is not row:
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

    def _loaded(self, name: Any) -> CachedRow:
        """A row, loaded together with others that the expected events need."""
        engine, rows = self._engine, self._engine.cache.rows
        try:
            wanted = self._streams() if engine.by_stream else self._keys()
            if name in wanted:  # First: there may be no room for all.
                wanted = {name: wanted.pop(name), **wanted}
            engine.load(dict(islice(wanted.items(), engine.cache.most_loaded)))
        except BaseException as error:
            raise _LoadFailed(error) from error
        return rows[name]

    def _streams(self) -> dict[Any, Key]:
        """The streams whose rows are needed and not cached."""
        definition, rows = self._engine.definition, self._engine.cache.rows
        handlers, takes_all = definition.handlers, definition.catch_all is not None
        wanted = [
            e for e in self._expected if e.stream not in rows and (takes_all or e.type in handlers)
        ]
        if not self._from_queue:  # An event from the queue may be older than its row.
            self._engine.note_new_streams([e.stream for e in wanted if e.version == 1])
        return {e.stream: (e.stream,) for e in wanted if e.stream not in rows}

    def _keys(self) -> dict[Any, Key]:
        """The same where keys are not streams."""
        rows = self._engine.cache.rows
        keys = [item[1] for item in self._decoded.values() if isinstance(item, tuple)]
        return {key: key for key in keys if key not in rows}

    def _decode(self, events: Sequence[RawEvent]) -> None:
        """Decodes events ahead, for their rows' keys. An error is raised in its event's turn."""
        self._decoded.clear()
        for event in events:
            try:
                item = self._engine.decode(event)
            except BaseException as error:
                failed = blame(self._engine.session, event, error)
                failed.__cause__ = error
                self._decoded[event.position] = failed
            else:
                self._decoded[event.position] = item

    def _found(self, event: RawEvent) -> _Decoded | None:
        """What was decoded ahead."""
        found = self._decoded[event.position]
        if isinstance(found, Exception):
            raise found
        return found

    def _failure(self, event: RawEvent, error: BaseException) -> EventFailed:
        """The event's failure; raises what is not its failure."""
        if isinstance(error, _LoadFailed):
            raise error.error
        if isinstance(error, EventFailed):
            return error
        if isinstance(error, StoreFailedAt):
            raise error
        failed = blame(self._engine.session, event, error)
        if failed is not error:
            failed.__cause__ = error
        if isinstance(failed, EventFailed):
            return failed
        raise failed

    def _result_of(self, row: Any, result: Any) -> Any | None:
        """The row that a handler leaves, by what it returned; None for its deletion."""
        result = self._engine.invoker.resolve(result)
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
