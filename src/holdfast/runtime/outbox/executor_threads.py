"""The threads of a relay's executors, as many as there should be."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ExecutorThreads:
    """Numbered threads. Those that are too many end by themselves."""

    def __init__(self, projection: str, run: Callable[[int], None]) -> None:
        self._projection, self._run = projection, run
        self._threads: list[threading.Thread] = []

    def keep(self, count: int) -> None:
        """Starts those of the first `count` that don't run."""
        for n in range(count):
            if n < len(self._threads) and self._threads[n].is_alive():
                continue
            name = f"holdfast {self._projection} {n}"
            thread = threading.Thread(target=self._run, args=(n,), name=name, daemon=True)
            self._threads[n : n + 1] = [thread]
            thread.start()

    def includes_this(self) -> bool:
        """Whether the calling code runs in one of them."""
        return threading.current_thread() in self._threads

    def join(self, timeout_seconds: float) -> bool:
        """Waits for one that has not ended; returns whether all have."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout_seconds)
                return False
        return True
