"""Runs workers, a thread each. One worker's fault never stops another.

The thread of a worker that has faulted waits for an operator, and then goes on with a new worker.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from holdfast.runtime.run.worker import Worker


class Supervisor:
    """Starts workers on threads of their own, and stops them together or some of them."""

    def __init__(
        self,
        workers: Sequence[Worker] = (),
        *,
        wake: Callable[[], None] = lambda: None,
        ended: Callable[[Worker], None] = lambda _: None,
        renewed: Callable[[Worker], Worker] | None = None,
    ) -> None:
        """`wake` wakes workers that wait for news; `ended` is called on the thread of each.

        `renewed` makes another worker in the place of one that has faulted; without it, a fault
        ends the thread.
        """
        self.workers = list(workers)
        self._wake, self._on_end, self._renewed = wake, ended, renewed
        self._pid = os.getpid()
        self._ended = threading.Condition()
        self._dismissed: set[Worker] = set()
        """The workers that were asked to end."""
        self._successors: dict[Worker, Worker] = {}
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
        self._dismiss(self.workers)
        self._wake()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the workers to end; returns whether all have."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout_seconds)

    def remove(self, workers: Iterable[Worker], timeout_seconds: float) -> None:
        """Stops workers, waits for them to finish their batch, and abandons those that don't."""
        ending = self._dismiss(workers)
        self._wake()
        with self._ended:
            self._ended.wait_for(lambda: self._running.isdisjoint(ending), timeout_seconds)
            slow = [worker for worker in ending if worker in self._running]
        _abandon(slow, None)
        for worker in ending:
            self.workers.remove(worker)
            self._dismissed.discard(worker)

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

    @property
    def is_stuck(self) -> bool:
        """Whether nothing goes on before an operator does something."""
        return bool(self.workers) and all(worker.is_stuck for worker in self.workers)

    def _dismiss(self, workers: Iterable[Worker]) -> list[Worker]:
        """Asks workers, or those in their place, to end."""
        with self._ended:
            ending = [self._latest(worker) for worker in workers]
            ending = [worker for worker in ending if worker in self.workers]
            self._dismissed.update(ending)
            self._ended.notify_all()
        for worker in ending:
            worker.stop()
        return ending

    def _latest(self, worker: Worker) -> Worker:
        while worker in self._successors:
            worker = self._successors[worker]
        return worker

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
            while (successor := self._successor(worker)) is not None:
                worker = successor
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

    def _successor(self, worker: Worker) -> Worker | None:
        """Waits after a fault; the worker that goes on then, or None if it is over."""
        is_forked = os.getpid() != self._pid
        if self._renewed is None or worker.fault is None or is_forked:
            return None
        if not worker.await_operator(partial(self._is_dismissed, worker)):
            return None
        with self._ended:
            if worker in self._dismissed:
                return None
            successor = self._renewed(worker)
            self._successors[worker] = successor
            self.workers[self.workers.index(worker)] = successor
            self._running.add(successor)
            self._running.discard(worker)
            self._threads[successor] = self._threads.pop(worker)
            return successor

    def _is_dismissed(self, worker: Worker, wait_seconds: float) -> bool:
        with self._ended:
            return self._ended.wait_for(lambda: worker in self._dismissed, wait_seconds)


def _abandon(workers: Sequence[Worker], timeout_seconds: float | None) -> None:
    """At once: a worker that can't reach the store must not delay the others."""
    threads = [threading.Thread(target=worker.abandon, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    for thread in threads:
        thread.join(None if until is None else max(0.0, until - time.monotonic()))
