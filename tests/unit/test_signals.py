"""The wake that wakes readers, the signals that listeners hear, and the log lines they become."""

import logging
import threading
from datetime import UTC, datetime

import pytest

from holdfast.logs import log_signal
from holdfast.runtime.signals import (
    Committed,
    Faulted,
    LeaseLost,
    PollFailed,
    Signal,
    Signals,
    Singled,
    Started,
    Stopped,
)
from holdfast.runtime.store.faults import Fault
from holdfast.runtime.wake import WakeSignal

WAIT_SECONDS = 30.0
FOR_EVER_SECONDS = 3_600.0
"""A wait that would be ended by the test's own limit."""


def test_a_ring_before_the_wait_is_not_missed() -> None:
    wake = WakeSignal()
    heard = wake.count
    wake.notify()
    wake.wait(heard, FOR_EVER_SECONDS)
    assert wake.count == heard + 1


def test_a_ring_wakes_all_who_wait() -> None:
    wake = WakeSignal()
    heard = wake.count
    threads = [
        threading.Thread(target=wake.wait, args=(heard, FOR_EVER_SECONDS), daemon=True)
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    wake.notify()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)


def test_a_wait_without_a_ring_ends_in_time() -> None:
    wake = WakeSignal()
    wake.notify()
    wake.wait(wake.count, 0.01)
    assert wake.count == 1


def test_the_bell_is_awaited_while_somebody_waits() -> None:
    wake = WakeSignal()
    assert not wake.awaited.is_set()
    threads = [
        threading.Thread(target=wake.wait, args=(wake.count, FOR_EVER_SECONDS), daemon=True)
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert wake.awaited.wait(WAIT_SECONDS)
    wake.wait(wake.count, 0.0)  # Who leaves leaves the others waiting.
    assert wake.awaited.is_set()
    wake.notify()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not wake.awaited.is_set()


FAULT = Fault(
    error_type="ValueError",
    error_message="no 4, please",
    error_stacktrace="Traceback …",
    at=datetime(2026, 1, 1, tzinfo=UTC),
    position=7,
)
LINES: list[tuple[Signal, int, str]] = [
    (Started("p", "f", 3, 2), logging.INFO, "projection started: projection=p feed=f position=3"),
    (Committed("p", "f", 9, 6, 0.5), logging.DEBUG, "batch committed: projection=p"),
    (Stopped("p", "f", 9), logging.INFO, "projection stopped: projection=p"),
    (LeaseLost("p", "f", "why"), logging.WARNING, "lease lost, standing by: projection=p"),
    (
        Singled("p", "f", 7, 2, 10_000),
        logging.WARNING,
        "processes have died here, trying events one at a time: projection=p",
    ),
    (PollFailed("p", "f", 2, "why", 0.2), logging.WARNING, "store unavailable, trying again"),
    (Faulted("p", "f", FAULT), logging.ERROR, "'p' stopped at position 7: ValueError: no 4"),
]


@pytest.mark.parametrize(("signal", "level", "text"), LINES)
def test_every_signal_is_a_log_line(
    signal: Signal, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="holdfast"):
        log_signal(signal)
    record = caplog.records[0]
    assert (record.name, record.levelno) == ("holdfast", level)
    assert text in record.getMessage()
    assert record.holdfast["projection"] == "p"  # type: ignore[attr-defined]


def test_listeners_hear_in_order() -> None:
    signals = Signals()
    heard: list[tuple[str, Signal]] = []
    signals.listen(lambda signal: heard.append(("one", signal)))
    signals.listen(lambda signal: heard.append(("two", signal)))
    stopped = Stopped("p", "f", 9)
    signals.emit(stopped)
    assert heard == [("one", stopped), ("two", stopped)]
