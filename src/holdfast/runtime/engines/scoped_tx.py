"""The transaction as the handler of one event gets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.store.transaction import JoinableTx


class ScopedTx:
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


def flushed(handler: Function, flush: Callable[[], None]) -> Function:
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
