"""Log records from the core's signals, under the logger `holdfast`. Texts are constant."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import assert_never

from holdfast.core.runner import fault_message
from holdfast.core.signals import (
    Committed,
    Faulted,
    LeaseLost,
    Listener,
    PollFailed,
    Signal,
    Started,
    Stopped,
)

logger = logging.getLogger("holdfast")


def log_signal(signal: Signal) -> None:
    """Logs one signal, with its fields under `extra`."""
    match signal:
        case Started():
            _log(logging.INFO, "projection started", signal)
        case Committed():
            _log(logging.DEBUG, "batch committed", signal)
        case Stopped():
            _log(logging.INFO, "projection stopped", signal)
        case LeaseLost():
            _log(logging.WARNING, "lease lost, standing by", signal)
        case PollFailed():
            _log(logging.WARNING, "store unavailable, trying again", signal)
        case Faulted():
            logger.error(
                "projection faulted: %s",
                fault_message(signal.projection, signal.fault),
                extra={"holdfast": {"projection": signal.projection, "feed": signal.feed}},
            )
            logger.debug("projection faulted, traceback: %s", signal.fault.error_stacktrace)
        case _:
            assert_never(signal)


def guarded(listener: Listener) -> Listener:
    """The listener, unable to stop a projection: what it raises is logged."""

    def listen(signal: Signal) -> None:
        try:
            listener(signal)
        except Exception:
            logger.exception("a listener failed")

    return listen


def _log(level: int, text: str, signal: Signal) -> None:
    if logger.isEnabledFor(level):
        fields = asdict(signal)
        shown = " ".join(f"{key}={value}" for key, value in fields.items())
        logger.log(level, "%s: %s", text, shown, extra={"holdfast": fields})
