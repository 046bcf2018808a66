"""What an App does when its process forks, so that it can be used in the child as in the parent.

A child has one thread: locks that others held stay locked, and threads that it counts on are not
there. Whatever has locks, threads or connections registers here and makes them anew in the child.

SQLite needs more. Its library keeps the locks of a process in one place for all connections to a
file, and the child inherits the record without the locks: it would write unprotected, or wait for
a lock that nobody holds. So at a fork no thread is inside SQLite, and no connection is open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.errors import HoldfastError

FORK_SECONDS = 15.0
"""How long a fork waits for other threads' transactions on SQLite: longer than a busy writer."""


T = TypeVar("T")
Step = Callable[[Any], None]

_owners: WeakKeyDictionary[object, tuple[Step, Step | None]] = WeakKeyDictionary()
_forks = 0
_ticket: ContextVar[object] = ContextVar("holdfast_forks", default=None)
"""Shows that this code is past the gate. A context variable: asyncio carries it on."""


graveyard: list[object] = []
"""Connections of a parent process, kept so that they are never closed in this one."""


def at_fork(
    owner: T, in_child: Callable[[T], None], *, before: Callable[[T], None] | None = None
) -> None:
    """Calls two functions with the owner, for as long as it lives.

    `in_child` makes locks anew, and forgets threads and connections. `before` runs in the parent
    while nobody calls SQLite, and closes connections, which are opened again when needed.
    """
    _owners[owner] = in_child, before


def count() -> int:
    """The number of forks that this process has begun: it shows whether a new descriptor leaked."""
    return _forks


class Gate:
    """Many are inside at a time. A fork waits until they are out, and keeps others out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: set[object] = set()
        self._is_shut = False
        self._is_quiet = True
        self._refuses = False

    @contextmanager
    def inside(self) -> Iterator[None]:
        """No fork happens in this block, unless it comes from the block itself."""
        if self._refuses:
            raise HoldfastError(
                "SQLite can't be used in this process: it was forked while its parent was inside a "
                "transaction. Fork outside of handlers, or start the process with spawn"
            )
        before = _ticket.get()
        if before in self._inside:
            yield
            return
        ticket = object()
        with self._changed:
            if self._is_shut:
                self._changed.wait_for(lambda: not self._is_shut)
            self._inside.add(ticket)
        _ticket.set(ticket)
        try:
            yield
        finally:
            _ticket.set(before)
            with self._changed:
                self._inside.discard(ticket)
                if self._is_shut:
                    self._changed.notify_all()

    def shut(self, timeout_seconds: float) -> bool:
        """Waits for those inside, and returns whether all are out."""
        mine = {_ticket.get()}
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut, timeout_seconds)
            self._is_shut = True
            self._changed.wait_for(lambda: not self._inside - mine, timeout_seconds)
            self._is_quiet = not self._inside
            return self._is_quiet

    def open(self) -> None:
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()

    def forked(self) -> None:
        self._changed = threading.Condition()
        self._inside = set()
        self._is_shut = False
        self._refuses = self._refuses or not self._is_quiet


calls = Gate()
"""Every call of SQLite is inside."""


def _before() -> None:
    global _forks
    _forks += 1
    if calls.shut(FORK_SECONDS):
        for owner, (_, before) in list(_owners.items()):
            if before is not None:
                before(owner)


def _in_child() -> None:
    calls.forked()
    for owner, (in_child, _) in list(_owners.items()):
        in_child(owner)


os.register_at_fork(before=_before, after_in_parent=calls.open, after_in_child=_in_child)
