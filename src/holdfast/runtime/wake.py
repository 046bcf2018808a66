"""Wakes threads that wait for news."""

from __future__ import annotations

import threading


class WakeSignal:
    """Wakes those who wait for news. No ring is missed between looking and waiting."""

    def __init__(self) -> None:
        self._rings = 0
        self.renew()

    def renew(self) -> None:
        """Frees it from threads that are not there, in the child of a fork."""
        self._changed = threading.Condition()
        self._waiting = 0
        self.awaited = threading.Event()
        """Set while somebody waits."""

    @property
    def rings(self) -> int:
        """How often it has rung; take this before you look for news."""
        return self._rings

    def ring(self) -> None:
        with self._changed:
            self._rings += 1
            self._changed.notify_all()

    def wait(self, heard: int, timeout_seconds: float) -> bool:
        """Returns at the first ring after `heard`, or in time; and whether it has rung."""
        with self._changed:
            self._waiting += 1
            self.awaited.set()
            try:
                return self._changed.wait_for(lambda: self._rings != heard, timeout_seconds)
            finally:
                self._waiting -= 1
                if not self._waiting:
                    self.awaited.clear()
