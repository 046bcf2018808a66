"""The transaction as the handler of one event gets it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.store.transaction import HandlerTx


class Begins(Protocol):
    """A transaction that is open, or begins on first use."""

    tx: HandlerTx | None

    @property
    def callbacks(self) -> list[Function]: ...

    def begin(self) -> HandlerTx: ...


class ScopedTx:
    """The transaction for the time of one event's handler.

    A thread or a task that outlives the handler must not write into the next event's part.
    """

    __slots__ = ("_connection_is_lent", "_transaction")

    def __init__(self, transaction: Begins) -> None:
        self._transaction: Begins | None = transaction
        self._connection_is_lent = False

    def end(self) -> None:
        self._transaction = None

    @property
    def connection(self) -> Any:
        self._connection_is_lent = True
        return self._tx().connection

    def execute(self, sql: str, params: Any = ()) -> int:
        return self._tx().execute(sql, params)

    def executemany(self, sql: str, params: Iterable[Any]) -> None:
        self._tx().executemany(sql, params)

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        return self._tx().fetch(sql, params)

    def write(self, sql: str, params: Any = ()) -> None:
        tx = self._tx()
        if self._connection_is_lent:
            tx.execute(sql, params)  # The lent connection must not be in a pipeline.
        else:
            tx.write(sql, params)

    def after_commit(self, callback: Function) -> None:
        self._open().callbacks.append(callback)

    def appends(self) -> Any:
        """The connection for an append that joins the transaction."""
        tx = self._tx()
        tx.has_appended = True
        return tx.connection

    def _tx(self) -> HandlerTx:
        transaction = self._transaction or self._open()
        return transaction.tx or transaction.begin()

    def _open(self) -> Begins:
        if self._transaction is None:
            raise HoldfastError(
                "this tx has ended with its handler; what a thread or a task does later needs a "
                "connection of its own"
            )
        return self._transaction
