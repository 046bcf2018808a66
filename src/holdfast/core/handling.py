"""Handlers that run inside the transaction.

An event that fails must leave no trace, and a savepoint for every event would cost too much. So
events are done in groups: one savepoint for a group, and when an event fails, those of its group
that had succeeded are done again. Groups shrink when events fail, and grow while they don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any

from holdfast.core.caller import Caller, Function
from holdfast.core.codec import EventTypes
from holdfast.core.definition import Definition
from holdfast.core.engine import BatchLost, Calls, EventFailed, StoreFailedAt, Unrepeatable
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.ports import Checkpoint, HandlerTx, RolledBack, Session, Work

LARGEST_GROUP = 128
"""Events that may have to be done again for the sake of one."""


class HandlerEngine:
    """Calls handlers inside the transaction."""

    def __init__(
        self, definition: Definition, types: EventTypes, session: Session, caller: Caller
    ) -> None:
        self._session = session
        self.calls = Calls(definition, types, session, caller)
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
                largest = 1 if singly else LARGEST_GROUP
                yield HandlerBatch(self.calls, work, tx, handling, largest)
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


class HandlerBatch:
    """Events in one transaction of handlers."""

    def __init__(
        self, calls: Calls, work: Work, tx: HandlerTx, handling: ExitStack, largest: int
    ) -> None:
        self._calls, self._work, self._tx, self._handling = calls, work, tx, handling
        self.lane_of = calls.lane_of
        self._largest = self._size = largest
        self._group: list[tuple[RawEvent, Function]] = []
        self._callbacks = 0
        self._has_savepoint = False

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        handler = instead
        try:
            handler = handler or self._calls.definition.handler_of(event.type)
        except Exception as error:
            raise EventFailed(event, error) from error
        if handler is None:
            return False
        if not self._has_savepoint or len(self._group) >= self._size:
            self._next_group()
        try:
            self._call(event, handler)
        except BaseException as error:
            failed = self._calls.blamed(event, error)
            if isinstance(failed, EventFailed):
                try:
                    self._undo()
                except RolledBack:
                    raise BatchLost(event, error) from error
            elif isinstance(failed, StoreFailedAt) and not failed.error.connection_lost:
                with suppress(RolledBack, StoreUnavailable):
                    self._work.undo()  # Says so if a handler has ended the transaction.
            raise failed from error
        self._group.append((event, handler))
        return True

    @contextmanager
    def finished(self) -> Iterator[Work]:
        self._handling.close()
        yield self._work

    def _call(self, event: RawEvent, handler: Function) -> None:
        tx = EventTx(self._tx)
        try:
            self._calls.call(event.type, handler, self._calls.types.decode(event), tx)
        finally:
            tx.end()
        self._work.check_intact()

    def _next_group(self) -> None:
        if self._has_savepoint:
            self._size = min(self._size * 2, self._largest)
        self._work.savepoint()
        self._has_savepoint = True
        self._group.clear()
        self._callbacks = len(self._tx.callbacks)

    def _undo(self) -> None:
        """Takes back the group, and does again what had succeeded."""
        self._work.undo()
        del self._tx.callbacks[self._callbacks :]
        self._size = max(1, len(self._group) // 4)
        for event, handler in self._group:
            try:
                self._call(event, handler)
            except BaseException as error:
                failed = self._calls.blamed(event, error)
                raise Unrepeatable if isinstance(failed, EventFailed) else failed from error
        if self._group:
            self._work.savepoint()
            self._group.clear()
            self._callbacks = len(self._tx.callbacks)


class EventTx:
    """The transaction for the time of one event's handler.

    A thread or a task that lives on must not write into the next event's part.
    """

    __slots__ = ("_tx",)

    def __init__(self, tx: HandlerTx) -> None:
        self._tx: HandlerTx | None = tx

    def end(self) -> None:
        self._tx = None

    @property
    def connection(self) -> Any:
        return self._open().connection

    def execute(self, sql: str, params: Any = ()) -> int:
        return self._open().execute(sql, params)

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self._open().executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        return self._open().fetch(sql, params)

    def after_commit(self, callback: Function) -> None:
        self._open().after_commit(callback)

    def appends(self) -> Any:
        """The connection for an append that joins the transaction."""
        tx = self._open()
        tx.has_appended = True
        return tx.connection

    def _open(self) -> HandlerTx:
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

    def after_commit(self, callback: Function) -> None:
        self.callbacks.append(callback)
