"""Log records of signals, under the logger `holdfast`. Texts are constant."""

from __future__ import annotations

import logging
import sys
from typing import Any

from holdfast.runtime import signals
from holdfast.runtime.signals import Failed, Faulted, Listener, Signal
from holdfast.runtime.store.faults import MAX_STACKTRACE_CHARACTERS, fault_message
from holdfast.texts import clean, shown

logger = logging.getLogger("holdfast")

TEXTS: dict[type, tuple[int, str]] = {
    signals.Started: (logging.INFO, "projection started"),
    signals.Committed: (logging.DEBUG, "batch committed"),
    signals.Stopped: (logging.INFO, "projection stopped"),
    signals.Singled: (logging.WARNING, "processes have died here, trying events one at a time"),
    signals.LeaseLost: (logging.WARNING, "lease lost, standing by"),
    signals.BegunAgain: (logging.INFO, "projection was reset or rewound, going on from there"),
    signals.PollFailed: (logging.WARNING, "store unavailable, trying again"),
    signals.PollRecovered: (logging.INFO, "store available again"),
    signals.Refused: (logging.INFO, "batch refused, reading it again in smaller ones"),
    signals.Failed: (logging.WARNING, "event failed"),
    signals.Waited: (logging.DEBUG, "projection has waited"),
    signals.BreakerOpened: (logging.WARNING, "circuit breaker opened"),
    signals.Skipped: (logging.WARNING, "event skipped"),
    signals.Parked: (logging.WARNING, "event parked, lane closed"),
    signals.Queued: (logging.INFO, "events wait in a closed lane"),
    signals.Duplicates: (logging.DEBUG, "duplicate events passed"),
    signals.Died: (logging.ERROR, "parked event needs an operator"),
    signals.Drained: (logging.INFO, "lane drained"),
    signals.Recovered: (logging.INFO, "event applied after failures"),
    signals.CallbackFailed: (logging.ERROR, "callback failed after the commit"),
    signals.HookFailed: (logging.ERROR, "stopped() of the projection failed"),
    signals.Paused: (logging.INFO, "projection paused"),
    signals.Resumed: (logging.INFO, "projection resumed"),
    signals.Changed: (logging.INFO, "projection changed"),
}
"""The level and text of each signal, except Faulted, whose text is not constant."""


def log_signal(signal: Signal) -> None:
    """Logs one signal, with its fields under `extra`."""
    if isinstance(signal, Faulted):
        logger.error(
            "projection faulted: %s",
            _loggable(fault_message(signal.projection, signal.fault)),
            extra={"holdfast": {"projection": signal.projection, "feed": signal.feed}},
        )
        stacktrace = _loggable(signal.fault.error_stacktrace)
        logger.info("projection faulted, traceback: %s", stacktrace)
        return
    level, text = TEXTS[type(signal)]
    if logger.isEnabledFor(level):
        names = [name for name in signal.__dataclass_fields__ if name != "stacktrace"]
        fields = {name: _loggable(getattr(signal, name)) for name in names}
        listed = " ".join(f"{key}={value}" for key, value in fields.items())
        logger.log(level, "%s: %s", text, listed, extra={"holdfast": fields})
    if isinstance(signal, Failed):
        logger.debug("event failed, traceback: %s", _loggable(signal.stacktrace))


def guarded(listener: Listener) -> Listener:
    """A listener that can't stop a projection: its errors are logged."""

    def listen(signal: Signal) -> None:
        handled = sys.exception()
        try:
            listener(signal)
        except Exception as error:
            _detach(error, handled)
            logger.error("a listener failed", exc_info=error)

    return listen


def _loggable(value: Any) -> Any:
    """The value; a text is cut, on one line, and without secrets or control characters."""
    return shown(clean(value, MAX_STACKTRACE_CHARACTERS)) if isinstance(value, str) else value


def _detach(error: BaseException, handled: BaseException | None) -> None:
    """Removes the event's error from the context of the listener's: its text may be masked."""
    while error.__context__ is not None and error.__context__ is not handled:
        error = error.__context__
    error.__context__ = None
