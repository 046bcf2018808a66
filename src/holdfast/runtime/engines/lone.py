"""One event alone, in a transaction that begins when its handler needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any

from holdfast.errors import TransactionEnded
from holdfast.model.event import RawEvent
from holdfast.runtime.engines.engine import Calls
from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.engines.scoped_tx import ScopedTx, flushed
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import HandlerTx, Transaction


class LoneBatch:
    """One event in a transaction that begins when it is needed.

    A handler that calls another system first holds no transaction meanwhile.
    """

    def __init__(self, calls: Calls, session: Session) -> None:
        self._calls, self._session = calls, session
        self.lane_of = calls.lane_of
        self.callbacks: list[Function] = []
        self._stack, self._handling = ExitStack(), ExitStack()
        self._work: Transaction | None = None
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
        tx = ScopedTx(LazyTx(self))
        try:
            handler = instead or self._calls.definition.handler_of(event.type)
            if handler is None:
                return False
            handler = flushed(handler, self._flush)
            with self._session.working():
                self._calls.call(event.type, handler, self._calls.types.decode(event), tx)
            if self._work is not None:
                self._work.check_intact()
        except BaseException as error:
            failed = self._calls.blamed(event, error)
            try:
                self._check_intact()
            finally:
                self._undo(error)
            raise failed from error
        finally:
            tx.end()
        return True

    @contextmanager
    def finished(self) -> Iterator[Transaction]:
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

    def _check_intact(self) -> None:
        """Raises TransactionEnded if the handler has ended it: then something may be left."""
        try:
            self._handling.close()
        except TransactionEnded:
            raise
        except Exception:
            return  # It says how the event has failed, once more.

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
