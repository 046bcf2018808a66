"""Events of outbox projections that are applied right after their append, by whoever appended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

from holdfast.core.caller import Caller
from holdfast.core.claims import Claim, Claims
from holdfast.core.definition import Definition
from holdfast.core.hand import Hand
from holdfast.core.ports import Session
from holdfast.core.relay import Relay

THREADS = 8
"""Appends of one process that are applied at the same time."""


class Inline:
    """Applies what was just appended, on threads of its own: an append waits no longer than it may.

    A lane in which anything else waits, or that somebody works on, is left to the relays, and so is
    whatever fails. What takes too long goes on without the append.
    """

    def __init__(
        self, open_relay: Callable[[Definition], Relay], open_session: Callable[[], Session]
    ) -> None:
        self._open_relay, self._open_session = open_relay, open_session
        self._relays: dict[str, Relay] = {}
        self._renew()

    def apply(
        self, definitions: Iterable[Definition], stream: str, types: Sequence[str]
    ) -> frozenset[str]:
        """Has appended events applied; returns the projections that have applied all of theirs."""
        begun: dict[str, tuple[Future[bool], float]] = {}
        now = time.monotonic()
        for definition in definitions:
            outbox = definition.outbox
            if outbox is None or outbox.inline_seconds is None:
                continue
            events = sum(definition.handles(event_type) for event_type in types)
            if events:
                done = self._pool().submit(self._work, definition, stream, events)
                begun[definition.name] = done, now + outbox.inline_seconds
        return frozenset(name for name, (done, until) in begun.items() if _is_done(done, until))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        for session in self._sessions:
            session.close()
        self._renew()

    def forked(self) -> None:
        """In the child of a fork there are no threads."""
        self._renew()

    def _renew(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._sessions: list[Session] = []
        self._own = threading.local()
        self._lock = threading.Lock()

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast inline")
            return self._threads

    def _work(self, definition: Definition, stream: str, events: int) -> bool:
        token = ""
        taken: Sequence[Claim] = ()
        hand: Hand | None = None
        try:
            found = self._hand(definition)
            if found is None:
                return False
            hand, claims = found
            while events:
                token = f"inline-{uuid4().hex}"
                taken = claims.claim_lane(token, stream, events=events)
                if not taken:
                    return False
                hand.work(token, taken)
                left = claims.waiting(stream)
                if left >= events:
                    return left == 0
                events = left
        except Exception:
            # It is in the queue, where relays find it, and say what is wrong.
            self._own.__dict__.pop(definition.name, None)
            if hand is not None and taken:
                with suppress(Exception):
                    hand.give_back(token, taken)
            return False
        return True

    def _hand(self, definition: Definition) -> tuple[Hand, Claims] | None:
        """What this thread needs to work; None while another process makes the tables."""
        known: dict[str, tuple[Hand, Claims]] = self._own.__dict__
        if definition.name not in known:
            with self._lock:
                relay = self._relays.get(definition.name)
                if relay is None:
                    relay = self._open_relay(definition)
                    if not relay.prepare():
                        return None
                    self._relays[definition.name] = relay
                session = self._open_session()
                self._sessions.append(session)
            known[definition.name] = relay.hand(session, Caller())
        return known[definition.name]


def _is_done(done: Future[bool], until: float) -> bool:
    with suppress(TimeoutError):
        return done.result(max(0.0, until - time.monotonic()))
    return False
