"""Runs many projections, a thread each. One projection's fault never stops another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from holdfast.runtime.run.worker import Worker


class Supervisor:
    """Starts runners on threads of their own, and stops them together."""

    def __init__(self, runners: Sequence[Worker], *, wake: Callable[[], None]) -> None:
        self.runners = tuple(runners)
        self._wake = wake
        self._ended = threading.Condition()
        self._running = 0
        # Daemons: a handler that never returns can't keep the process alive. What it had begun
        # is not committed, and the next start does it again.
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(runner,),
                name=f"holdfast {runner.definition.name}",
                daemon=True,
            )
            for runner in self.runners
        ]

    def start(self) -> None:
        self._running = len(self._threads)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Asks every runner to commit what it has begun and end."""
        for runner in self.runners:
            runner.stop()
        self._wake()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the runners to end; returns whether all have."""
        with self._ended:
            return self._ended.wait_for(lambda: self._running == 0, timeout_seconds)

    def abandon(self, timeout_seconds: float) -> None:
        """The process ends though handlers have not: notes that nobody has died of an event."""
        threads = [threading.Thread(target=r.abandon, daemon=True) for r in self.running]
        for thread in threads:
            thread.start()
        until = time.monotonic() + timeout_seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    @property
    def runs_this(self) -> bool:
        """Whether the calling code runs in one of its threads: a handler, that is."""
        this = threading.current_thread()
        return this in self._threads or any(this in runner.threads for runner in self.runners)

    @property
    def has_left_threads(self) -> bool:
        """Whether threads run on that nobody waits for, such as a client that can't leave."""
        return any(thread.is_alive() for runner in self.runners for thread in runner.threads)

    @property
    def running(self) -> list[Worker]:
        """The runners that have not ended."""
        pairs = zip(self.runners, self._threads, strict=True)
        return [runner for runner, thread in pairs if thread.is_alive()]

    @property
    def faulted(self) -> list[Worker]:
        """The runners that ended with a fault."""
        return [runner for runner in self.runners if runner.fault is not None]

    def _run(self, runner: Worker) -> None:
        try:
            runner.run()
        except BaseException as error:
            runner.crash(error)
            raise
        finally:
            with self._ended:
                self._running -= 1
                self._ended.notify_all()
