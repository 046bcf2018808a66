"""A transaction of handlers, which begins when the first of them is called."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import HandlerTx, Transaction


class LazyTransaction:
    """Begins a transaction where there is none, and commits it if its block ends without an error.

    A batch that has nothing for handlers has no transaction but the checkpoint's.
    """

    def __init__(
        self, session: Session, checkpoint: Checkpoint | None, work: Transaction | None
    ) -> None:
        """`checkpoint`: what must be as it was, or nothing begins; `work`: what is open already."""
        self._session, self._checkpoint, self._work = session, checkpoint, work
        self._transaction, self._handling = ExitStack(), ExitStack()
        self.callbacks: Sequence[Function] = ()

    def __enter__(self) -> LazyTransaction:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._transaction.__exit__(exc_type, exc, traceback)

    def begin(self) -> tuple[Transaction, HandlerTx]:
        """The transaction with a savepoint, and what handlers get of it; called once."""
        work = self._opened()
        if self._checkpoint is not None:
            # A runner that was deposed while it slept must not even begin a side effect.
            self._session.check_epoch(self._checkpoint)
        self._transaction.push(self._handling)
        tx = self._handling.enter_context(work.handling(savepoint=True))
        self.callbacks = tx.callbacks
        return work, tx

    def finished(self) -> Transaction:
        """The transaction, which handlers are done with."""
        self._handling.close()
        return self._opened()

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Handlers are done, and only the checkpoint is left to be moved on."""
        self._handling.close()
        return (self._work or self._session).advance(checkpoint, to)

    def _opened(self) -> Transaction:
        if self._work is None:
            self._work = self._transaction.enter_context(self._session.transaction())
        return self._work
