"""A lock that is taken in the order of asking, and that knows when it would wait for itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.core.errors import HoldfastError


class Turns:
    """First come, first served. Python's own lock lets the quickest thread starve the others."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._owner: int | None = None

    @contextmanager
    def take(self) -> Iterator[None]:
        """Waits for its turn; raises if this thread has the turn already."""
        me = threading.get_ident()
        turn: threading.Lock | None = None
        with self._guard:
            if self._owner == me:
                raise HoldfastError(
                    "this thread is inside a transaction already, and SQLite has one writer; in a "
                    "handler, pass connection=tx to join its transaction"
                )
            if self._owner is None:
                self._owner = me
            else:
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
        if turn is not None:
            self._wait(turn)
            self._owner = me
        try:
            yield
        finally:
            with self._guard:
                self._pass_on()

    def _wait(self, turn: threading.Lock) -> None:
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C: the place in the queue must not be handed to nobody.
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._pass_on()
            raise

    def _pass_on(self) -> None:
        # -1: nobody's yet, but not free, so that a newcomer can't overtake.
        self._owner = -1 if self._waiting else None
        if self._waiting:
            self._waiting.popleft().release()
