"""A transaction of handlers that begins on first use."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import TracebackType

from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import HandlerTx, Transaction


class LazyTransaction:
    """Begins a transaction on first use; commits it if the block ends without an error.

    A batch without an event for a handler has no transaction but the checkpoint's. A handler that
    calls another system first holds no transaction meanwhile.
    """

    def __init__(
        self,
        session: Session,
        *,
        checkpoint: Checkpoint | None = None,
        transaction: Transaction | None = None,
        with_savepoint: bool = False,
    ) -> None:
        """`checkpoint`: must be unchanged, or nothing begins. `transaction`: is open already."""
        self._session, self._checkpoint = session, checkpoint
        self._with_savepoint = with_savepoint
        self._outer, self._handling = ExitStack(), ExitStack()
        self.transaction = transaction
        self.tx: HandlerTx | None = None
        self.callbacks: list[Function] = []
        """What handlers want to be called after the commit."""

    def __enter__(self) -> LazyTransaction:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._outer.__exit__(exc_type, exc, traceback)

    def begin(self) -> HandlerTx:
        """What handlers get of the transaction, which has begun by now."""
        if self.tx is None:
            transaction = self._opened()
            if self._checkpoint is not None:
                # A runner that was deposed while it slept must not even begin a side effect.
                self._session.check_epoch(self._checkpoint)
            self._outer.push(self._handling)
            handling = transaction.handling(savepoint=self._with_savepoint)
            self.tx = self._handling.enter_context(handling)
        return self.tx

    def finished(self) -> Transaction:
        """The transaction, after the last handler has run."""
        self._handling.close()
        return self._opened()

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Moves the checkpoint on, after the last handler has run."""
        self._handling.close()
        return (self.transaction or self._session).advance(checkpoint, to)

    def roll_back(self, error: BaseException) -> None:
        """Undoes everything; the next use begins another transaction."""
        self.callbacks.clear()
        with suppress(BaseException):
            self._outer.__exit__(type(error), error, error.__traceback__)
        self._outer, self._handling = ExitStack(), ExitStack()
        self.transaction = self.tx = None

    def _opened(self) -> Transaction:
        if self.transaction is None:
            self.transaction = self._outer.enter_context(self._session.transaction())
        return self.transaction
