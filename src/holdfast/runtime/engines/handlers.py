"""Handlers that run inside the transaction.

An event that fails must leave no trace, and a savepoint for every event would cost too much. So
events are done in groups: one savepoint for a group, and when an event fails, those of its group
that had succeeded are done again. Groups shrink when events fail, and grow while they don't.

What handlers only write is not waited for before the next event, but once for the whole group. If
it has failed, it is not known whose it was: the batch is done again, with care for a while, which
is to wait for each event's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from holdfast.errors import RolledBack, StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.event_types import EventTypes
from holdfast.runtime.engines.engine import (
    BatchLost,
    Calls,
    EventFailed,
    Ran,
    StoreFailedAt,
    Unrepeatable,
    run_singly,
)
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.engines.lone import LoneBatch
from holdfast.runtime.engines.opening import LazyTransaction
from holdfast.runtime.engines.scoped_tx import ScopedTx, flushed
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import HandlerTx, Transaction

LARGEST_GROUP = 128
"""Events that may have to be done again for the sake of one."""

LARGEST_UNSURE = 1_024
"""Events that may be done again, with care, because something that they have written has failed."""

CARE_EVENTS = 2 * LARGEST_GROUP
"""So many events in a row at least must have gone well with care before it ends."""


class HandlerEngine:
    """Calls handlers inside the transaction."""

    def __init__(
        self, definition: Definition, types: EventTypes, session: Session, caller: Invoker
    ) -> None:
        self._session = session
        self.calls = Calls(definition, types, session, caller)
        self._care = Care()
        self._callbacks: Sequence[Function] = ()

    @contextmanager
    def batch(
        self,
        checkpoint: Checkpoint | None,
        work: Transaction | None,
        *,
        again: bool,  # noqa: ARG002
        singly: bool,
    ) -> Iterator[HandlerBatch]:
        with LazyTransaction(self._session, checkpoint, work) as opening:
            yield HandlerBatch(self.calls, opening, care=self._care, singly=singly)
        self._callbacks = opening.callbacks

    @contextmanager
    def lone(self) -> Iterator[LoneBatch]:
        """One event, in a transaction that begins when its handler needs it."""
        with LoneBatch(self.calls, self._session) as batch:
            yield batch
        self._callbacks = batch.callbacks

    def committed(self) -> Sequence[Function]:
        callbacks, self._callbacks = self._callbacks, ()
        return callbacks

    def forget(self) -> None:
        self._callbacks = ()

    def drop(self, streams: Iterable[str]) -> None: ...


class Care:
    """Whether what an event has written is waited for, and for how many events more.

    A session begins with care: the last one may have ended by what an event has written.
    """

    def __init__(self) -> None:
        self._left, self._since = CARE_EVENTS, 0

    def covers(self, event: RawEvent) -> bool:
        return self._left > 0 and event.position >= self._since

    def renew(self, since: RawEvent, events: int = 0) -> None:
        """Something has failed that one of so many events, from this one on, has written."""
        self._left, self._since = max(CARE_EVENTS, events), since.position

    def passed(self) -> None:
        """An event has gone well with care."""
        self._left -= 1


class HandlerBatch:
    """Events in one transaction of handlers, which begins with the first that has one."""

    def __init__(self, calls: Calls, opening: LazyTransaction, *, care: Care, singly: bool) -> None:
        self._calls, self._opening = calls, opening
        self._work: Transaction
        self._tx: HandlerTx
        self.lane_of = calls.lane_of
        self._largest = self._size = 1 if singly else LARGEST_GROUP
        self._group: list[tuple[RawEvent, Function]] = []
        self._callbacks = 0
        self._has_savepoint = False
        self._care = care
        self._decode, self._is_limited = calls.types.decode, calls.is_limited
        # A time limit is for what a handler writes too.
        self._is_exact = singly or calls.is_limited
        self._unsure: RawEvent | None = None
        """The first event of which it is not known whether all that it has written is done."""
        self._unsure_events = 0

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        handler = instead
        try:
            handler = handler or self._calls.definition.handler_of(event.type)
        except Exception as error:
            raise EventFailed(event, error) from error
        if handler is None:
            return False
        # The first one is always waited for: so what comes before a later one can be committed.
        waits = self._is_exact or not self._has_savepoint or instead is not None
        is_careful = self._care.covers(event)
        waits = waits or is_careful
        if not self._has_savepoint or len(self._group) >= self._size:
            self._next_group()
        try:
            self._call(event, handler, waits=waits)
        except BaseException as error:
            self._settle()
            if self._tx.failed is not None:
                self._care.renew(event)
            failed = self._calls.blamed(event, error)
            if isinstance(failed, EventFailed):
                try:
                    self._undo(waits=waits)
                except RolledBack:
                    raise BatchLost(event, error) from error
            elif isinstance(failed, StoreFailedAt) and not failed.error.connection_lost:
                with suppress(RolledBack, StoreUnavailable):
                    self._work.undo()  # Says so if a handler has ended the transaction.
            raise failed from error
        if is_careful:
            self._care.passed()
        self._group.append((event, handler))
        return True

    is_full = False

    def expect(self, events: Sequence[RawEvent]) -> None: ...

    def run(self, events: Iterable[RawEvent]) -> Ran:
        return run_singly(self.apply, events)

    @contextmanager
    def finished(self) -> Iterator[Transaction]:
        if self._has_savepoint:
            self._settle()
        yield self._opening.finished()

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        if self._has_savepoint:
            self._settle()
        return self._opening.advance(checkpoint, to)

    def _call(self, event: RawEvent, handler: Function, *, waits: bool) -> None:
        """Calls a handler, and waits for what it has written if it `waits`."""
        self._tx.failed = None
        if waits:
            handler = flushed(handler, self._tx.flush)
        tx = ScopedTx(self._tx)
        try:
            decoded = self._decode(event)
            if self._is_limited:
                self._calls.call(event.type, handler, decoded, tx)
            elif (result := handler(decoded, tx)) is not None:
                self._calls.settle(result)
        finally:
            tx.end()
        if self._unsure is not None and self._tx.failed is not None:
            raise self._tx.failed  # The handler has swallowed it.
        if not self._tx.is_behind:
            self._unsure = None
            self._work.check_intact()
        elif self._unsure is None:
            self._unsure, self._unsure_events, self._tx.failed = event, 1, None
        else:
            self._unsure_events += 1

    def _settle(self) -> None:
        """Waits for what is written; raises if it was an earlier event's, and has failed."""
        with suppress(Exception):
            self._tx.flush()  # It keeps the error.
        first, self._unsure = self._unsure, None
        error = self._tx.failed
        if first is None or error is None:
            return
        self._care.renew(first, self._unsure_events + 1)
        failed = self._calls.blamed(first, error)
        if not (isinstance(failed, StoreFailedAt) and failed.error.connection_lost):
            with suppress(RolledBack, StoreUnavailable):
                self._work.undo()  # Says so if a handler has ended the transaction.
            failed = BatchLost(first, error)
        raise failed from error

    def _next_group(self) -> None:
        if self._unsure is not None and self._unsure_events >= LARGEST_UNSURE:
            self._settle()
        if self._has_savepoint:
            self._size = min(self._size * 2, self._largest)
            self._work.savepoint()
        else:
            self._work, self._tx = self._opening.begin()
            self._has_savepoint = True
        self._group.clear()
        self._callbacks = len(self._tx.callbacks)

    def _undo(self, *, waits: bool) -> None:
        """Takes back the group, and does again what had succeeded."""
        self._work.undo()
        del self._tx.callbacks[self._callbacks :]
        self._size = max(1, len(self._group) // 4)
        for n, (event, handler) in enumerate(self._group, 1):
            try:
                self._call(event, handler, waits=waits or n == len(self._group))
            except BaseException as error:
                failed = self._calls.blamed(event, error)
                raise Unrepeatable if isinstance(failed, EventFailed) else failed from error
        if self._group:
            self._work.savepoint()
            self._group.clear()
            self._callbacks = len(self._tx.callbacks)
