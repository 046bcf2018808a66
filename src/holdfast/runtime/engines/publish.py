"""Events that are passed on to another system, which acknowledges them later.

No transaction is open meanwhile: the other system may be slow or away, and must not hold up the
database. The transaction that moves the checkpoint begins when all events are acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from holdfast.model.event import RawEvent
from holdfast.model.projection import Publisher
from holdfast.runtime.engines.engine import Ran, run_each
from holdfast.runtime.engines.handlers import HandlerBatch, HandlerEngine
from holdfast.runtime.engines.invoke import Function
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import Transaction


class PublishingEngine:
    """Lets a publisher publish; `handlers` has the transaction."""

    def __init__(self, publisher: Publisher, session: Session, handlers: HandlerEngine) -> None:
        self._publisher, self._session, self._handlers = publisher, session, handlers

    @contextmanager
    def batch(
        self,
        checkpoint: Checkpoint | None,
        transaction: Transaction | None,
        *,
        from_queue: bool,
        singly: bool,  # noqa: ARG002
    ) -> Iterator[PublishingBatch]:
        if checkpoint is not None:
            # A runner that was deposed while it slept must not even begin.
            self._session.check_epoch(checkpoint)
        with ExitStack() as stack:
            publishing = stack.enter_context(ExitStack())
            publish = publishing.enter_context(self._publisher.batch())

            def begin() -> HandlerBatch:
                inner = self._handlers.batch(
                    checkpoint, transaction, from_queue=from_queue, singly=True
                )
                return stack.enter_context(inner)

            yield PublishingBatch(self._handlers, publish, publishing.close, begin)

    def committed(self) -> Sequence[Function]:
        return self._handlers.committed()

    def forget(self) -> None:
        self._handlers.forget()

    def drop(self, streams: Iterable[str]) -> None: ...


class PublishingBatch:
    """Events being published; `await_all` returns when all are acknowledged."""

    is_full = False

    def __init__(
        self,
        handlers: HandlerEngine,
        publish: Callable[[RawEvent], None],
        await_all: Callable[[], None],
        begin: Callable[[], HandlerBatch],
    ) -> None:
        self._calls, self._publish, self._await_all = handlers.calls, publish, await_all
        self._begin = begin
        self._transaction: HandlerBatch | None = None
        self.lane_of = handlers.calls.lane_of

    def expect(self, events: Sequence[RawEvent]) -> None: ...

    def run(self, events: Iterable[RawEvent]) -> Ran:
        return run_each(self.apply, events)

    def apply(self, event: RawEvent, instead: Function | None = None) -> bool:
        if instead is not None:  # A fallback, which may want to write.
            return self._begun().apply(event, instead)
        handler = self._calls.handler_of(event)
        if handler is None:
            return False
        handler(event, self._publish)
        return True

    @contextmanager
    def finished(self) -> Iterator[Transaction]:
        self._await_all()
        with self._begun().finished() as transaction:
            yield transaction

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        self._await_all()
        return self._begun().advance(checkpoint, to)

    def _begun(self) -> HandlerBatch:
        if self._transaction is None:
            self._transaction = self._begin()
        return self._transaction
