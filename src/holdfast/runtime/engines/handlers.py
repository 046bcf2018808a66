"""Handlers that run inside the transaction.

A failed event must leave no trace, and a savepoint for each event would cost too much. So events
run in groups with one savepoint each. When an event of a group fails, the group is undone, and the
events before it run again. Groups shrink when events fail, and grow while they don't.

What handlers write with `tx.write` is not waited for before the end of the group. If it fails then,
the culprit is unknown: the group runs again event by event, with a savepoint for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Any

from holdfast.errors import RolledBack, StoreUnavailable, TransactionEnded
from holdfast.model.definition import Definition, lane_of
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.runtime.engines.engine import (
    BatchLost,
    EventFailed,
    Ran,
    StoreFailedAt,
    Unrepeatable,
    blame,
)
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.engines.lazy_transaction import LazyTransaction
from holdfast.runtime.engines.scoped_tx import ScopedTx
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import Transaction


class HandlerEngine:
    """Calls handlers inside the transaction."""

    def __init__(
        self,
        definition: Definition,
        types: EventTypes,
        session: Session,
        invoker: Invoker,
        limits: RuntimeLimits,
    ) -> None:
        self._session, self._group_events = session, limits.group_events
        self.calls = HandlerCalls(definition, types, session, invoker)
        self._callbacks: Sequence[Function] = ()

    @contextmanager
    def batch(
        self,
        checkpoint: Checkpoint | None,
        transaction: Transaction | None,
        *,
        from_queue: bool,  # noqa: ARG002
        singly: bool,
    ) -> Iterator[HandlerBatch]:
        with LazyTransaction(
            self._session, checkpoint=checkpoint, transaction=transaction, with_savepoint=True
        ) as lazy:
            yield HandlerBatch(self.calls, lazy, 1 if singly else self._group_events)
        self._callbacks = lazy.callbacks

    @contextmanager
    def one_event(self) -> Iterator[SingleEvent]:
        """One event, in a transaction that begins when its handler first uses it."""
        with LazyTransaction(self._session) as lazy:
            yield SingleEvent(self.calls, lazy)
        self._callbacks = lazy.callbacks

    def committed(self) -> Sequence[Function]:
        callbacks, self._callbacks = self._callbacks, ()
        return callbacks

    def forget(self) -> None:
        self._callbacks = ()

    def drop(self, streams: Iterable[str]) -> None: ...


class HandlerCalls:
    """Calls the handlers of one projection, within the time limits of its policies."""

    def __init__(
        self, definition: Definition, types: EventTypes, session: Session, invoker: Invoker
    ) -> None:
        self.definition, self.types, self.session = definition, types, session
        self._invoker = invoker

    def lane_of(self, event: RawEvent) -> str:
        return lane_of(self.definition, self.types, event)

    def handler_of(self, event: RawEvent) -> Function | None:
        """The handler of an event; raises EventFailed where a strict projection has none."""
        try:
            return self.definition.handler_of(event.type)
        except Exception as error:
            raise EventFailed(event, error) from error

    def call(
        self, event: RawEvent, handler: Function, lazy: LazyTransaction, *, flushes: bool
    ) -> None:
        """Calls a handler; with `flushes`, all that it has written is done before this returns."""
        tx = ScopedTx(lazy)
        try:
            decoded = self.types.decode(event)
            seconds = None
            if self.definition.tuning.has_time_limits:
                seconds = self.definition.policy_of(event.type).backoff.timeout_seconds
            if seconds is None:
                if (result := handler(decoded, tx)) is not None:
                    self._invoker.resolve(result)
                if flushes:
                    _flush(lazy)
            else:
                # What a handler writes counts for its limit too.
                limited = _flushing(handler, lazy)
                interrupt = self.session.interrupt
                self._invoker.call_within(seconds, interrupt, limited, decoded, tx)
        finally:
            tx.end()


class HandlerBatch:
    """Events in one transaction of handlers, which begins with the first event that has one."""

    is_full = False

    def __init__(self, calls: HandlerCalls, lazy: LazyTransaction, group_events: int) -> None:
        """`group_events`: the maximum of events that run again for the sake of one that failed."""
        self._calls, self._lazy = calls, lazy
        self.lane_of = calls.lane_of
        self._largest = self._size = group_events
        self._group: list[tuple[RawEvent, Function]] = []
        """The events since the savepoint, with their handlers."""
        self._of_earlier_runs = 0
        """How many events of the group earlier runs have applied."""
        self._callbacks = 0
        """How many callbacks there were at the savepoint."""

    def expect(self, events: Sequence[RawEvent]) -> None: ...

    def run(self, events: Iterable[RawEvent]) -> Ran:
        first: RawEvent | None = None
        self._of_earlier_runs = len(self._group)
        try:
            for event in events:
                handler = self._calls.handler_of(event)
                if handler is None:
                    continue
                first = first or event
                if self._lazy.tx is None or len(self._group) >= self._size:
                    self._next_group()
                self._call(event, handler, flushes=self._size == 1)
            self._end_group()
        except EventFailed as failed:
            # It may be the first one of a group whose later events had seemed to succeed.
            return Ran(first is not None and first is not failed.event, failed)
        return Ran(first is not None)

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        handler = instead or self._calls.handler_of(event)
        if handler is None:
            return False
        if self._lazy.tx is None or instead is not None or len(self._group) >= self._size:
            self._next_group()
        self._call(event, handler, flushes=True)
        return True

    @contextmanager
    def finished(self) -> Iterator[Transaction]:
        yield self._lazy.finished()

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        return self._lazy.advance(checkpoint, to)

    def _call(self, event: RawEvent, handler: Function, *, flushes: bool) -> None:
        """Calls a handler; raises EventFailed with the event of the group that has failed."""
        tx = self._lazy.begin()
        is_alone_to_blame = not tx.is_behind
        try:
            self._calls.call(event, handler, self._lazy, flushes=flushes)
            if not tx.is_behind:
                self._transaction.check_intact()
        except BaseException as error:
            failed = self._blame(event, error)
            if is_alone_to_blame:
                self._undo(event, error)
                self._run_again(self._group)
                raise failed from error
            self._find_culprit([*self._group, (event, handler)])
        else:
            self._group.append((event, handler))

    def _end_group(self) -> None:
        """Waits for what the group has written."""
        if not self._group:
            return
        try:
            _flush(self._lazy)
            self._transaction.check_intact()
        except BaseException as error:
            self._blame(self._group[0][0], error)
            self._find_culprit(self._group)

    def _next_group(self) -> None:
        if self._lazy.tx is None:
            self._lazy.begin()
        else:
            self._end_group()
            self._size = min(self._size * 2, self._largest)
            self._transaction.savepoint()
        self._begin_group()

    def _begin_group(self) -> None:
        self._group, self._of_earlier_runs = [], 0
        self._callbacks = len(self._lazy.callbacks)

    def _blame(self, event: RawEvent, error: BaseException) -> EventFailed:
        """The event's failure; raises what is not its failure."""
        failed = blame(self._calls.session, event, error)
        if isinstance(failed, EventFailed):
            return failed
        if isinstance(failed, StoreFailedAt) and not failed.error.connection_lost:
            with suppress(RolledBack, StoreUnavailable):
                self._transaction.undo()  # Says so if a handler has ended the transaction.
        raise failed from error

    def _undo(self, event: RawEvent, error: BaseException) -> None:
        """Goes back to the savepoint."""
        try:
            self._transaction.undo()
        except RolledBack:
            raise BatchLost(event, error) from error
        del self._lazy.callbacks[self._callbacks :]
        self._size = max(1, len(self._group) // 4)

    def _run_again(self, group: Sequence[tuple[RawEvent, Function]]) -> None:
        """Runs the events that had succeeded again, and sets a savepoint behind them."""
        for event, handler in group:
            try:
                self._calls.call(event, handler, self._lazy, flushes=True)
                self._transaction.check_intact()
            except BaseException as error:
                self._blame(event, error)
                raise Unrepeatable from error
        if group:
            self._transaction.savepoint()
        self._begin_group()

    def _find_culprit(self, group: Sequence[tuple[RawEvent, Function]]) -> None:
        """Runs a group again event by event; raises EventFailed at the one that fails.

        The events behind it are not applied then. If none fails this time, all are applied.
        """
        first, done = group[0][0], self._of_earlier_runs
        self._undo(first, RuntimeError("a statement that an event has written failed"))
        self._begin_group()
        for index, (event, handler) in enumerate(group):
            try:
                self._calls.call(event, handler, self._lazy, flushes=True)
                self._transaction.check_intact()
            except BaseException as error:
                failed = self._blame(event, error)
                if index < done:
                    raise Unrepeatable from error  # Its success is counted already.
                self._undo(event, error)
                raise failed from error
            self._transaction.savepoint()
            self._begin_group()

    @property
    def _transaction(self) -> Transaction:
        assert self._lazy.transaction is not None
        return self._lazy.transaction


class SingleEvent:
    """One event in a transaction that begins when its handler first uses it."""

    def __init__(self, calls: HandlerCalls, lazy: LazyTransaction) -> None:
        self._calls, self._lazy = calls, lazy
        self.lane_of = calls.lane_of

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        try:
            handler = instead or self._calls.definition.handler_of(event.type)
            if handler is None:
                return False
            with self._calls.session.working():
                self._calls.call(event, handler, self._lazy, flushes=True)
            if self._lazy.transaction is not None:
                self._lazy.transaction.check_intact()
        except BaseException as error:
            failed = blame(self._calls.session, event, error)
            try:
                self._check_intact()
            finally:
                self._lazy.roll_back(error)
            raise failed from error
        return True

    @contextmanager
    def finished(self) -> Iterator[Transaction]:
        self._lazy.begin()
        yield self._lazy.finished()

    def _check_intact(self) -> None:
        """Raises TransactionEnded if the handler has ended it: then some of it may be stored."""
        try:
            if self._lazy.tx is not None:
                self._lazy.finished()
        except TransactionEnded:
            raise
        except Exception:
            return  # It says how the event has failed, once more.


def _flush(lazy: LazyTransaction) -> None:
    if lazy.tx is not None:
        lazy.tx.flush()


def _flushing(handler: Function, lazy: LazyTransaction) -> Function:
    """The handler, with the wait for what it has written."""

    async def awaited(result: Any) -> None:
        await result
        _flush(lazy)

    def run(*args: Any) -> Any:
        result = handler(*args)
        if isawaitable(result):
            return awaited(result)
        _flush(lazy)
        return result

    return run
