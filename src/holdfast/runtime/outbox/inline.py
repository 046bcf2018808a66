"""Applies events of outbox projections right after their append, in the appending process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from uuid import uuid4

from holdfast.model.definition import Definition, Outbox
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.outbox.claim_renewal import ClaimRenewer
from holdfast.runtime.outbox.executor import Executor
from holdfast.runtime.outbox.relay import Relay
from holdfast.runtime.store.session import Session

MAX_AT_ONCE = 8
"""Maximum of appends of one process whose events are applied at the same time."""


class Inline:
    """Applies what was just appended, on a thread of its own.

    An append waits `inline_seconds` at most.

    A lane in which anything else waits, or that is claimed, is left to the relays, and so is an
    event that fails, or that finds too many others at work. A handler that takes too long goes on
    without the append.
    """

    def __init__(
        self,
        open_relay: Callable[[Definition], Relay],
        open_session: Callable[[], Session],
        *,
        wake: Callable[[], None],
    ) -> None:
        """`wake` tells the relays that there is something to do."""
        self._open_relay, self._open_session, self._wake = open_relay, open_session, wake
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MAX_AT_ONCE)
        self._targets: dict[str, _Target] = {}
        self._threads: set[threading.Thread] = set()

    def apply(
        self, definitions: Iterable[Definition], stream: str, types: Sequence[str]
    ) -> frozenset[str]:
        """Has appended events applied; returns the projections that have applied all of theirs."""
        begun: list[tuple[_Work, float]] = []
        now = time.monotonic()
        for definition in definitions:
            outbox = definition.delivery
            if not isinstance(outbox, Outbox) or outbox.inline_seconds is None:
                continue
            events = sum(definition.handles(event_type) for event_type in types)
            if events and self._slots.acquire(blocking=False):
                work = _Work(self._target(definition), stream, events, self._ended)
                with self._lock:
                    self._threads.add(work)
                work.start()
                begun.append((work, now + outbox.inline_seconds))
        for work, until in begun:
            work.join(max(0.0, until - time.monotonic()))
        return frozenset(work.projection for work, _ in begun if work.is_done)

    def close(self, timeout_seconds: float) -> None:
        """Waits a while for what has begun."""
        until = time.monotonic() + timeout_seconds
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        for target in self._targets.values():
            target.close()

    def _target(self, definition: Definition) -> _Target:
        with self._lock:
            target = self._targets.get(definition.name)
            if target is None:
                relay = self._open_relay(definition)
                target = _Target(definition.name, relay, self._open_session)
                self._targets[definition.name] = target
            return target

    def _ended(self, work: _Work) -> None:
        self._slots.release()
        with self._lock:
            self._threads.discard(work)
        if not work.is_done:
            self._wake()


class _Work(threading.Thread):
    """The events of one append for one projection.

    A daemon: a handler that hangs must not keep the process from ending.
    """

    def __init__(
        self, target: _Target, stream: str, events: int, ended: Callable[[_Work], None]
    ) -> None:
        super().__init__(name="holdfast inline", daemon=True)
        self.projection, self.is_done = target.projection, False
        self._target, self._stream, self._events = target, stream, events
        self._ended = ended

    def run(self) -> None:
        try:
            # An error is not lost: the events are in the queue, where relays find them.
            with suppress(Exception):
                self.is_done = self._target.apply(self._stream, self._events)
        finally:
            self._ended(self)


class _Target:
    """A projection to which this process applies events, once its tables are there."""

    def __init__(self, projection: str, relay: Relay, open_session: Callable[[], Session]) -> None:
        self.projection, self._relay, self._open_session = projection, relay, open_session
        self._renewer = ClaimRenewer(relay.renew)
        self._is_prepared = False
        self._preparing = threading.Lock()
        self._idle: list[tuple[Executor, Session, Invoker]] = []

    def apply(self, stream: str, events: int) -> bool:
        """Applies the events of a lane, if nothing else waits in it; returns whether all are."""
        if not self._is_ready():
            return False
        executor, session, invoker = self._idle.pop() if self._idle else self._open()
        try:
            is_done = self._apply(executor, stream, events)
        except BaseException:
            invoker.close()
            session.close()
            raise
        self._idle.append((executor, session, invoker))
        return is_done

    def close(self) -> None:
        while self._idle:
            _, session, invoker = self._idle.pop()
            invoker.close()
            session.close()
        self._relay.leave()

    def _open(self) -> tuple[Executor, Session, Invoker]:
        session, invoker = self._open_session(), Invoker()
        return self._relay.executor(session, invoker), session, invoker

    def _is_ready(self) -> bool:
        """Whether events may be applied; not while it is prepared, which may take long."""
        if self._relay.has_stopped:
            return False
        if not self._is_prepared and self._preparing.acquire(blocking=False):
            try:
                self._is_prepared = self._is_prepared or self._relay.prepare()
            finally:
                self._preparing.release()
        return self._is_prepared

    def _apply(self, executor: Executor, stream: str, events: int) -> bool:
        while events:
            token = f"inline-{uuid4().hex}"
            taken = executor.claims.claim_lane(token, stream, events=events)
            if not taken:
                return False
            try:
                with self._renewer.renewing(token):
                    executor.work(token, taken)
            except Exception:
                with suppress(Exception):
                    executor.give_back(token, taken)
                raise
            left = executor.claims.waiting(stream)
            if left >= events:
                return left == 0
            events = left
        return True
