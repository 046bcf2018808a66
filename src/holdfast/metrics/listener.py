"""The listener that turns signals into counters and the histogram."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from holdfast.metrics import catalogue
from holdfast.metrics.catalogue import Metric
from holdfast.runtime import signals
from holdfast.runtime.signals import Listener, Signal

Record = Callable[[Metric, float, tuple[str, str]], None]
"""Adds a value to a counter or a histogram; the labels are projection and feed."""


def listener(record: Record) -> Listener:
    """A listener that records the values of each signal."""

    def listen(signal: Signal) -> None:
        for metric, value in _values(signal):
            record(metric, value, (signal.projection, signal.feed))

    return listen


def _values(signal: Signal) -> Iterator[tuple[Metric, float]]:
    match signal:
        case signals.Started():
            # With a value from the start, the first increase of a counter shows.
            yield from ((counter, 0) for counter in catalogue.COUNTERS)
        case signals.Committed():
            yield catalogue.PROCESSED, signal.events
            yield catalogue.BATCH_DURATION, signal.seconds
        case signals.Drained():
            yield catalogue.PROCESSED, signal.events
            yield catalogue.DRAINED, signal.events
        case signals.Failed():
            yield catalogue.FAILED, 1
            if signal.decision == "retry":
                yield catalogue.RETRIED, 1
        case signals.Waited():
            yield catalogue.WAITED, signal.seconds
        case signals.Skipped():
            yield catalogue.SKIPPED, 1
        case signals.Duplicates():
            yield catalogue.DUPLICATES, signal.events
        case signals.Parked():
            yield catalogue.PARKED, 1
        case signals.Died():
            yield catalogue.DEAD, 1
        case signals.Faulted():
            yield catalogue.FAULTS, 1
        case signals.PollFailed():
            yield catalogue.POLL_FAILURES, 1
        case (
            signals.Stopped()
            | signals.LeaseLost()
            | signals.BegunAgain()
            | signals.Singled()
            | signals.PollRecovered()
            | signals.Refused()
            | signals.BreakerOpened()
            | signals.Queued()
            | signals.Recovered()
            | signals.CallbackFailed()
            | signals.HookFailed()
            | signals.Paused()
            | signals.Resumed()
            | signals.Changed()
        ):
            return
        case _:
            assert_never(signal)
