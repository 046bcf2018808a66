"""Runs workers, a thread each. One worker's fault never stops another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from holdfast.runtime.run.worker import Worker


class Supervisor:
    """Starts workers on threads of their own, and stops them together or some of them."""

    def __init__(
        self,
        workers: Sequence[Worker] = (),
        *,
        wake: Callable[[], None] = lambda: None,
        ended: Callable[[Worker], None] = lambda _: None,
    ) -> None:
        """`wake` wakes workers that wait for news; `ended` is called on the thread of each."""
        self.workers = list(workers)
        self._wake, self._on_end = wake, ended
        self._ended = threading.Condition()
        self._threads: dict[Worker, threading.Thread] = {}
        self._running: set[Worker] = set()

    def start(self) -> None:
        """Starts the workers that it was given."""
        with self._ended:
            self._running.update(self.workers)
        for worker in self.workers:
            self._start(worker)

    def add(self, worker: Worker) -> None:
        """Starts one more worker."""
        self.workers.append(worker)
        with self._ended:
            self._running.add(worker)
        self._start(worker)

    def stop(self) -> None:
        """Asks all workers to commit what they have begun and end."""
        for worker in list(self.workers):
            worker.stop()
        self._wake()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the workers to end; returns whether all have."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout_seconds)

    def remove(self, workers: Iterable[Worker], timeout_seconds: float) -> None:
        """Stops workers, waits for them to finish their batch, and abandons those that don't."""
        ending = [worker for worker in workers if worker in self.workers]
        for worker in ending:
            worker.stop()
        self._wake()
        with self._ended:
            self._ended.wait_for(lambda: self._running.isdisjoint(ending), timeout_seconds)
            slow = [worker for worker in ending if worker in self._running]
        _abandon(slow, None)
        for worker in ending:
            self.workers.remove(worker)

    def abandon(self, timeout_seconds: float | None = None) -> None:
        """The process ends though handlers have not returned: notes that no event is to blame."""
        _abandon(self.running, timeout_seconds)

    @property
    def runs_this(self) -> bool:
        """Whether the calling code runs in one of its threads: in a handler, that is."""
        this = threading.current_thread()
        return this in self._threads.values() or any(w.runs_this_thread() for w in self.workers)

    @property
    def has_left_threads(self) -> bool:
        """Whether threads still run that nobody waits for, such as a client that can't leave."""
        return any(worker.has_left_threads for worker in self.workers)

    @property
    def running(self) -> list[Worker]:
        """The workers that have not ended."""
        with self._ended:
            return [worker for worker in self.workers if worker in self._running]

    @property
    def faulted(self) -> list[Worker]:
        """The workers that ended with a fault."""
        return [worker for worker in self.workers if worker.fault is not None]

    def _start(self, worker: Worker) -> None:
        # A daemon: a handler that never returns can't keep the process alive. What it had begun is
        # not committed, and the next start does it again.
        thread = threading.Thread(
            target=self._run, args=(worker,), name=f"holdfast {worker.name}", daemon=True
        )
        self._threads[worker] = thread
        thread.start()

    def _run(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:
            worker.crash(error)
            raise
        finally:
            self._on_end(worker)
            with self._ended:
                self._running.discard(worker)
                self._threads.pop(worker, None)
                self._ended.notify_all()


def _abandon(workers: Sequence[Worker], timeout_seconds: float | None) -> None:
    """At once: a worker that can't reach the store must not delay the others."""
    threads = [threading.Thread(target=worker.abandon, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    for thread in threads:
        thread.join(None if until is None else max(0.0, until - time.monotonic()))
