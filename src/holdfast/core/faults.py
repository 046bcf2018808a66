"""Why a projection has stopped: as it is kept, and as people read it."""

from __future__ import annotations

from holdfast.core.event import RawEvent
from holdfast.core.ports import Clock, Fault, TransactionEnded
from holdfast.core.queue import MAX_STACKTRACE_CHARACTERS, clean, text_of
from holdfast.core.traces import format_error


def fault_of(error: BaseException, clock: Clock, event: RawEvent | None = None) -> Fault:
    """The fault that an error makes; without an event, none is to blame."""
    return Fault(
        error_type=type(error).__name__,
        error_message=text_of(error),
        error_stacktrace=clean(format_error(error), MAX_STACKTRACE_CHARACTERS),
        at=clock.now(),
        position=event.position if event else None,
        event_id=event.id if event else None,
        event_type=event.type if event else None,
        needs_reset=isinstance(error, TransactionEnded),
        error=error,
    )


def fault_message(projection: str, fault: Fault) -> str:
    """A fault in one sentence, with what to do next."""
    at = "" if fault.position is None else f" at position {fault.position}"
    what = "" if fault.event_type is None else f" on {fault.event_type!r} event {fault.event_id}"
    told = f"projection {projection!r} stopped{at}{what}: {fault.error_type}: {fault.error_message}"
    if fault.needs_reset:
        return f"{told} (mend the handler, then holdfast reset {projection})"
    before = "" if fault.position is None else "everything before it is committed; "
    return f"{told} ({before}mend the cause, then start it again)"
