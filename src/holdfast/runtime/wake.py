"""WakeSignal wakes waiting threads, StopSignal ends them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakSet


class StopSignal(threading.Event):
    """Set when a worker is to end; and in the child of a fork, where none of them goes on.

    Such a child exists when a handler forks and both processes return from it.
    """

    def __init__(self) -> None:
        super().__init__()
        _stops.add(self)


_stops: WeakSet[StopSignal] = WeakSet()


def _stop_in_child() -> None:
    for stop in list(_stops):
        threading.Event.__init__(stop)  # A thread that is not here may have held its lock.
        stop.set()


os.register_at_fork(after_in_child=_stop_in_child)


class WakeSignal:
    """Wakes waiting threads. No wake-up is missed between a check and the wait that follows."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0
        self.count = 0
        """The number of wake-ups. Read it before the check."""
        self.awaited = threading.Event()
        """Set while a thread waits."""

    def notify(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def nudge(self) -> None:
        """Has waiting threads check `also` again; for the others nothing has happened."""
        with self._changed:
            self._changed.notify_all()

    def wait(
        self, seen: int, timeout_seconds: float, also: Callable[[], bool] = lambda: False
    ) -> bool:
        """Waits for the first wake-up after the count `seen`, or until `also` is true.

        Returns False after the timeout.
        """
        with self._changed:
            self._waiting += 1
            self.awaited.set()
            try:
                return self._changed.wait_for(lambda: self.count != seen or also(), timeout_seconds)
            finally:
                self._waiting -= 1
                if not self._waiting:
                    self.awaited.clear()
