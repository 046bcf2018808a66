"""Wakes threads that wait for news."""

from __future__ import annotations

import threading


class WakeSignal:
    """Wakes the threads that wait. No wake-up is missed between looking for news and waiting."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0
        self.count = 0
        """How many wake-ups there were. Take it before you look for news."""
        self.awaited = threading.Event()
        """Set while a thread waits."""

    def notify(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout_seconds: float) -> bool:
        """Returns at the first wake-up after the count `seen`, or in time; and which."""
        with self._changed:
            self._waiting += 1
            self.awaited.set()
            try:
                return self._changed.wait_for(lambda: self.count != seen, timeout_seconds)
            finally:
                self._waiting -= 1
                if not self._waiting:
                    self.awaited.clear()
