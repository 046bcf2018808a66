"""Several processes that begin at the same moment."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from threading import Barrier

from bench.append import CONNECT_SECONDS
from bench.case import Sample

Work = Callable[[str, int, Callable[[], object]], Sample]
"""Given a database's URL and its own number, gets ready, calls the function, and is timed."""


def together(url: str, *, processes: int, work: Work, events: int) -> Sample:
    """Has so many processes do `work` at once, which must be importable by name."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, context) as pool:
        barrier = manager.Barrier(processes)
        working = [pool.submit(_begin, work, url, n, barrier) for n in range(processes)]
        samples = [process.result() for process in working]
    return Sample(
        events=events,
        seconds=max(sample.seconds for sample in samples),
        cpu_seconds=sum(sample.cpu_seconds for sample in samples),
    )


def _begin(work: Work, url: str, number: int, barrier: Barrier) -> Sample:
    return work(url, number, lambda: barrier.wait(CONNECT_SECONDS))
