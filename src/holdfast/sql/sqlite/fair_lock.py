"""A lock that serves its waiters in order, and that refuses to wait for itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast.errors import HoldfastError

_tickets: ContextVar[tuple[object, ...]] = ContextVar("holdfast_locks", default=())
"""The locks that this code holds. A context, not a thread: `asyncio.to_thread` carries it on."""


class FairLock:
    """First come, first served. Python's own lock lets the quickest thread starve the others."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False
        self._ticket: object = None

    @property
    def is_mine(self) -> bool:
        """Whether this code holds the lock, so that it would wait for ever."""
        return self._ticket in _tickets.get()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Takes the lock for the block; raises if this code holds it already."""
        if self.is_mine:
            raise HoldfastError(
                "this code is inside a transaction already, and SQLite has one writer; in a "
                "handler, pass connection=tx to join its transaction"
            )
        self._wait()
        before = _tickets.get()
        self._ticket = object()
        _tickets.set((*before, self._ticket))
        try:
            yield
        finally:
            _tickets.set(before)
            self._ticket = None
            with self._guard:
                self._pass_on()

    def _wait(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            place = threading.Lock()
            place.acquire()
            self._waiting.append(place)
        try:
            place.acquire()
        except BaseException:  # Ctrl-C: leave the queue, or pass the lock on.
            with self._guard:
                if place in self._waiting:
                    self._waiting.remove(place)
                else:
                    self._pass_on()
            raise

    def _pass_on(self) -> None:
        # It stays taken while a thread waits, so that a newcomer can't overtake.
        if self._waiting:
            self._waiting.popleft().release()
        else:
            self._taken = False
