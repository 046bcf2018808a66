"""Faults: why a projection has stopped, as it is stored and as operators read it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from types import CodeType
from uuid import UUID

from holdfast.errors import TransactionEnded
from holdfast.model.event import RawEvent
from holdfast.runtime.store.clock import Clock
from holdfast.texts import clean


def fault_of(error: BaseException, clock: Clock, event: RawEvent | None = None) -> Fault:
    """The fault of an error; without `event`, no event is to blame."""
    return Fault(
        error_type=type(error).__name__,
        error_message=text_of(error),
        error_stacktrace=stacktrace_of(error),
        at=clock.now(),
        position=event.position if event else None,
        event_id=event.id if event else None,
        event_type=event.type if event else None,
        needs_reset=isinstance(error, TransactionEnded),
        error=error,
    )


def fault_message(projection: str, fault: Fault) -> str:
    """A fault in one sentence, with the next step."""
    at = "" if fault.position is None else f" at position {fault.position}"
    what = "" if fault.event_type is None else f" on {fault.event_type!r} event {fault.event_id}"
    told = f"projection {projection!r} stopped{at}{what}: {fault.error_type}: {fault.error_message}"
    if fault.needs_reset:
        return f"{told} (fix the handler, then holdfast reset {projection})"
    before = "" if fault.position is None else "everything before it is committed; "
    return f"{told} ({before}fix the cause, then holdfast retry {projection}, or start it again)"


MAX_FRAMES = 50
"""Maximum number of frames of a traceback; the last ones are kept."""

MAX_CAUSES = 10
"""Maximum number of causes that are formatted with an error."""

CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"

DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def format_error(error: BaseException) -> str:
    """The error with its traceback, its notes and its causes."""
    try:
        return "".join(_chain(error, ()))
    except Exception as worse:
        return f"(no traceback: formatting it raised {type(worse).__name__})"


def _chain(error: BaseException, later: tuple[BaseException, ...]) -> Iterator[str]:
    """The text of an error and its causes; `later` are the errors that it caused."""
    if isinstance(error, BaseExceptionGroup):
        yield from traceback.format_exception(error)
        return
    later = (*later, error)
    cause, said = error.__cause__, CAUSED
    if cause is None and not error.__suppress_context__:
        cause, said = error.__context__, DURING
    # An error that is raised from itself makes a cycle.
    is_new = cause is not None and all(cause is not known for known in later)
    if cause is not None and is_new and len(later) <= MAX_CAUSES:
        yield from _chain(cause, later)
        yield said
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        frames = [(f.f_code, line) for f, line in traceback.walk_tb(error.__traceback__)]
        yield from (_frame(code, line) for code, line in frames[-MAX_FRAMES:])
    yield from traceback.format_exception_only(error)


@lru_cache(maxsize=1_000)
def _frame(code: CodeType, line: int) -> str:
    summary = traceback.FrameSummary(code.co_filename, line, code.co_name)
    return "".join(traceback.format_list([summary]))


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a projection stopped; the event's fields are None if no event is to blame.

    `error` is the exception, in the process that raised it. `needs_reset`: the rows may be ahead of
    the checkpoint, and to go on would apply events twice. `since`: when the event failed first;
    `attempts`: how often it has; `limit`: how often it may, None for no limit.
    """

    error_type: str
    error_message: str
    error_stacktrace: str
    at: datetime
    position: int | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    needs_reset: bool = False
    attempts: int = 0
    since: datetime | None = None
    limit: int | None = None
    error: BaseException | None = field(default=None, compare=False, repr=False)


MAX_MESSAGE_CHARACTERS = 2_000
"""Maximum length of a stored error message."""

MAX_STACKTRACE_CHARACTERS = 16_000
"""Maximum length of a stored traceback."""


def text_of(error: BaseException) -> str:
    """An error's message as it is stored and logged, even if `str` of it fails."""
    try:
        return clean(str(error), MAX_MESSAGE_CHARACTERS)
    except Exception as worse:
        return f"(no message: str() raised {type(worse).__name__})"


def stacktrace_of(error: BaseException) -> str:
    """An error's traceback as it is stored and logged."""
    return clean(format_error(error), MAX_STACKTRACE_CHARACTERS)
