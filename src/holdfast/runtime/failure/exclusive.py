"""One event alone in the whole process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ExclusiveRun:
    """Whether anything else is done in this process while one event is tried alone.

    Batches go side by side. An event that may kill the process has it to itself, so that a death
    can only be its own, and not that of another projection's event. All take their turns in the
    order in which they come: suspects, however many, leave room for the others between two events.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()
        self._batches = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """The time of a batch."""
        with self._changed:
            self._stand_in_line(lambda: not self._is_alone)
            self._batches += 1
        try:
            yield
        finally:
            with self._changed:
                self._batches -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The time of one event that is suspect."""
        with self._changed:
            self._stand_in_line(lambda: not (self._is_alone or self._batches))
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    def _stand_in_line(self, may_begin: Callable[[], bool]) -> None:
        own = object()
        self._line.append(own)
        try:
            self._changed.wait_for(lambda: self._line[0] is own and may_begin())
        finally:
            self._line.remove(own)
            self._changed.notify_all()


exclusive_run = ExclusiveRun()
"""One for all projections of a process. Read it from the module: the child of a fork has its own,
since the parent's batches never end there."""


def _begin_process() -> None:
    global exclusive_run
    exclusive_run = ExclusiveRun()


os.register_at_fork(after_in_child=_begin_process)
