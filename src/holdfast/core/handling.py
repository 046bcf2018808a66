"""Handlers that run inside the transaction.

An event that fails must leave no trace, and a savepoint for every event would cost too much. So
events are done in groups: one savepoint for a group, and when an event fails, those of its group
that had succeeded are done again. Groups shrink when events fail, and grow while they don't.

What handlers only write is not waited for before the next event, but once for the whole group. If
it has failed, it is not known whose it was: the batch is done again, with care for a while, which
is to wait for each event's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from inspect import isawaitable
from types import TracebackType
from typing import Any

from holdfast.core.caller import Caller, Function
from holdfast.core.codec import EventTypes
from holdfast.core.definition import Definition
from holdfast.core.engine import BatchLost, Calls, EventFailed, StoreFailedAt, Unrepeatable
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.ports import Checkpoint, HandlerTx, JoinableTx, RolledBack, Session, Work

LARGEST_GROUP = 128
"""Events that may have to be done again for the sake of one."""

LARGEST_UNSURE = 1_024
"""Events that may be done again, with care, because something that they have written has failed."""

CARE_EVENTS = 2 * LARGEST_GROUP
"""So many events in a row at least must have gone well with care before it ends."""


class HandlerEngine:
    """Calls handlers inside the transaction."""

    def __init__(
        self, definition: Definition, types: EventTypes, session: Session, caller: Caller
    ) -> None:
        self._session = session
        self.calls = Calls(definition, types, session, caller)
        self._care = Care()
        self._callbacks: Sequence[Function] = ()

    @contextmanager
    def batch(
        self,
        checkpoint: Checkpoint | None,
        _: Sequence[RawEvent],
        work: Work | None,
        *,
        again: bool,  # noqa: ARG002
        singly: bool,
    ) -> Iterator[HandlerBatch]:
        with nullcontext(work) if work else self._session.transaction() as work:
            if checkpoint is not None:
                # A runner that was deposed while it slept must not even begin a side effect.
                self._session.check_epoch(checkpoint)
            with ExitStack() as handling:
                tx = handling.enter_context(work.handling())
                yield HandlerBatch(self.calls, work, tx, handling, care=self._care, singly=singly)
            self._callbacks = tx.callbacks

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
    """Events in one transaction of handlers."""

    def __init__(
        self,
        calls: Calls,
        work: Work,
        tx: HandlerTx,
        handling: ExitStack,
        *,
        care: Care,
        singly: bool,
    ) -> None:
        self._calls, self._work, self._tx, self._handling = calls, work, tx, handling
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

    @contextmanager
    def finished(self) -> Iterator[Work]:
        self._settle()
        self._handling.close()
        yield self._work

    def _call(self, event: RawEvent, handler: Function, *, waits: bool) -> None:
        """Calls a handler, and waits for what it has written if it `waits`."""
        self._tx.failed = None
        if waits:
            handler = _flushed(handler, self._tx.flush)
        tx = EventTx(self._tx)
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


def _flushed(handler: Function, flush: Callable[[], None]) -> Function:
    """The handler, with the wait for what it has written."""

    def run(*args: Any) -> Any:
        result = handler(*args)
        if isawaitable(result):
            return _awaited(result, flush)
        flush()
        return result

    return run


async def _awaited(result: Awaitable[Any], flush: Callable[[], None]) -> None:
    await result
    flush()


class EventTx:
    """The transaction for the time of one event's handler.

    A thread or a task that lives on must not write into the next event's part.
    """

    __slots__ = ("_is_lent", "_tx")

    def __init__(self, tx: JoinableTx) -> None:
        self._tx: JoinableTx | None = tx
        self._is_lent = False

    def end(self) -> None:
        self._tx = None

    @property
    def connection(self) -> Any:
        self._is_lent = True
        return self._open().connection

    def execute(self, sql: str, params: Any = ()) -> int:
        return self._open().execute(sql, params)

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self._open().executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        return self._open().fetch(sql, params)

    def write(self, sql: str, params: Any = ()) -> None:
        tx = self._open()
        if self._is_lent:
            tx.execute(sql, params)  # Whoever has the connection must not find it behind.
        else:
            tx.write(sql, params)

    def after_commit(self, callback: Function) -> None:
        self._open().after_commit(callback)

    def appends(self) -> Any:
        """The connection for an append that joins the transaction."""
        tx = self._open()
        tx.has_appended = True
        return tx.connection

    def _open(self) -> JoinableTx:
        if self._tx is None:
            raise HoldfastError(
                "this tx has ended with its handler; what a thread or a task does later needs a "
                "connection of its own"
            )
        return self._tx


class LoneBatch:
    """One event in a transaction that begins when it is needed.

    A handler that calls another system first holds no transaction meanwhile.
    """

    def __init__(self, calls: Calls, session: Session) -> None:
        self._calls, self._session = calls, session
        self.lane_of = calls.lane_of
        self.callbacks: list[Function] = []
        self._stack, self._handling = ExitStack(), ExitStack()
        self._work: Work | None = None
        self._tx: HandlerTx | None = None

    def __enter__(self) -> LoneBatch:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(exc_type, exc, traceback)

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        tx = EventTx(LazyTx(self))
        try:
            handler = instead or self._calls.definition.handler_of(event.type)
            if handler is None:
                return False
            handler = _flushed(handler, self._flush)
            with self._session.working():
                self._calls.call(event.type, handler, self._calls.types.decode(event), tx)
            if self._work is not None:
                self._work.check_intact()
        except BaseException as error:
            failed = self._calls.blamed(event, error)
            self._undo(error)
            raise failed from error
        finally:
            tx.end()
        return True

    @contextmanager
    def finished(self) -> Iterator[Work]:
        self.begin()
        self._handling.close()
        assert self._work is not None
        yield self._work

    def begin(self) -> HandlerTx:
        """The transaction, begun by now."""
        if self._tx is None:
            self._work = self._stack.enter_context(self._session.transaction())
            self._stack.push(self._handling)
            self._tx = self._handling.enter_context(self._work.handling())
        return self._tx

    def _flush(self) -> None:
        if self._tx is not None:
            self._tx.flush()

    def _undo(self, error: BaseException) -> None:
        self.callbacks.clear()
        with suppress(BaseException):
            self._stack.__exit__(type(error), error, error.__traceback__)
        self._stack, self._handling = ExitStack(), ExitStack()
        self._work = self._tx = None


class LazyTx:
    """A transaction as handlers see it, which begins with its first use."""

    def __init__(self, batch: LoneBatch) -> None:
        self._batch = batch
        self.callbacks = batch.callbacks

    @property
    def connection(self) -> Any:
        return self._batch.begin().connection

    @property
    def has_appended(self) -> bool:
        return self._batch.begin().has_appended

    @has_appended.setter
    def has_appended(self, value: bool) -> None:
        self._batch.begin().has_appended = value

    def execute(self, sql: str, params: Any = ()) -> int:
        return self._batch.begin().execute(sql, params)

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self._batch.begin().executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        return self._batch.begin().fetch(sql, params)

    def write(self, sql: str, params: Any = ()) -> None:
        self._batch.begin().write(sql, params)

    def after_commit(self, callback: Function) -> None:
        self.callbacks.append(callback)
