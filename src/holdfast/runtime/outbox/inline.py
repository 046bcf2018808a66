"""Events of outbox projections that are applied right after their append, by whoever appended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from uuid import uuid4

from holdfast.model.definition import Definition, Outbox
from holdfast.running import STOP_SECONDS
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.outbox.claim_renewal import ClaimRenewer
from holdfast.runtime.outbox.relay import Relay
from holdfast.runtime.store.session import Session

THREADS = 8
"""Appends of one process that are applied at the same time."""


class Inline:
    """Applies what was just appended, on threads of its own: an append waits no longer than it may.

    A lane in which anything else waits, or that somebody works on, is left to the relays, and so is
    whatever fails, or finds all threads at work. What takes too long goes on without the append.
    """

    def __init__(
        self,
        open_relay: Callable[[Definition], Relay],
        open_session: Callable[[], Session],
        *,
        wake: Callable[[], None],
    ) -> None:
        """`wake`: there is something for the relays to do."""
        self._open_relay, self._open_session, self._wake = open_relay, open_session, wake
        self._renew()

    def apply(
        self, definitions: Iterable[Definition], stream: str, types: Sequence[str]
    ) -> frozenset[str]:
        """Has appended events applied; returns the projections that have applied all of theirs."""
        begun: dict[str, tuple[Future[bool], float]] = {}
        now = time.monotonic()
        for definition in definitions:
            outbox = definition.delivery
            if not isinstance(outbox, Outbox) or outbox.inline_seconds is None:
                continue
            events = sum(definition.handles(event_type) for event_type in types)
            if events:
                done = self._pool().submit(partial(self._work, definition, stream, events))
                begun[definition.name] = done, now + outbox.inline_seconds
        return frozenset(name for name, (done, until) in begun.items() if _is_done(done, until))

    def close(self) -> None:
        """Waits a while for what has begun; what has not is left to the relays."""
        if self._threads is None or self._threads.close(STOP_SECONDS):
            for tools in list(self._tools):
                tools.close()
        self._renew()

    def forked(self) -> None:
        """In the child of a fork there are no threads."""
        self._renew()

    def _renew(self) -> None:
        self._threads: _Threads | None = None
        self._prepared: dict[str, _Prepared] = {}
        self._tools: set[_Tools] = set()
        self._own = threading.local()
        self._lock = threading.Lock()

    def _pool(self) -> _Threads:
        with self._lock:
            if self._threads is None:
                self._threads = _Threads()
            return self._threads

    def _work(self, definition: Definition, stream: str, events: int) -> bool:
        with self._lock:
            prepared = self._prepared.setdefault(
                definition.name, _Prepared(self._open_relay(definition))
            )
        if not prepared.is_ready():
            return False
        is_done = False
        try:
            tools = self._tools_of(definition, prepared)
            is_done = _apply(tools, prepared.keeper, stream, events)
        except Exception:
            # It is in the queue, where relays find it, and say what is wrong.
            self._drop_tools(definition)
        if not is_done:
            self._wake()
        return is_done

    def _tools_of(self, definition: Definition, prepared: _Prepared) -> _Tools:
        known: dict[str, _Tools] = self._own.__dict__
        if definition.name not in known:
            tools = known[definition.name] = _Tools(prepared.relay, self._open_session())
            with self._lock:
                self._tools.add(tools)
        return known[definition.name]

    def _drop_tools(self, definition: Definition) -> None:
        tools: _Tools | None = self._own.__dict__.pop(definition.name, None)
        if tools is not None:
            with self._lock:
                self._tools.discard(tools)
            tools.close()


class _Threads:
    """A pool of daemons: a handler that hangs must not keep the process from ending."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[bool], Callable[[], bool]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._busy = 0

    def submit(self, job: Callable[[], bool]) -> Future[bool]:
        """Has a job done, unless it is cancelled before a thread is free."""
        done: Future[bool] = Future()
        with self._lock:
            self._busy += 1
            if self._busy > len(self._threads) and len(self._threads) < THREADS:
                thread = threading.Thread(target=self._run, name="holdfast inline", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put((done, job))
        return done

    def close(self, timeout_seconds: float) -> bool:
        """Ends the threads; returns whether all have ended in time."""
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (found := self._jobs.get()) is not None:
            done, job = found
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(job())
                except BaseException as error:
                    done.set_exception(error)
            with self._lock:
                self._busy -= 1


class _Prepared:
    """A projection that this process applies events to, once its tables are there."""

    def __init__(self, relay: Relay) -> None:
        self.relay, self.keeper = relay, ClaimRenewer(relay.renew)
        self._is_prepared = False
        self._preparing = threading.Lock()

    def is_ready(self) -> bool:
        """Whether events may be applied; not while anybody prepares it, which may take long."""
        if self.relay.has_stopped:
            return False
        if not self._is_prepared and self._preparing.acquire(blocking=False):
            try:
                self._is_prepared = self._is_prepared or self.relay.prepare()
            except Exception:
                return False  # The relays say what is wrong.
            finally:
                self._preparing.release()
        return self._is_prepared


class _Tools:
    """What one thread needs to work on one projection."""

    def __init__(self, relay: Relay, session: Session) -> None:
        self._session, self._caller = session, Invoker()
        self.hand, self.claims = relay.hand(session, self._caller)

    def close(self) -> None:
        self._caller.close()
        self._session.close()


def _apply(tools: _Tools, keeper: ClaimRenewer, stream: str, events: int) -> bool:
    """Applies the events of a lane, if nothing else waits in it; returns whether all are."""
    hand, claims = tools.hand, tools.claims
    while events:
        token = f"inline-{uuid4().hex}"
        taken = claims.claim_lane(token, stream, events=events)
        if not taken:
            return False
        try:
            with keeper.keeping(token):
                hand.work(token, taken)
        except Exception:
            with suppress(Exception):
                hand.give_back(token, taken)
            raise
        left = claims.waiting(stream)
        if left >= events:
            return left == 0
        events = left
    return True


def _is_done(done: Future[bool], until: float) -> bool:
    try:
        return done.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        done.cancel()  # If it has not begun, there is nobody to do it for.
        return False
