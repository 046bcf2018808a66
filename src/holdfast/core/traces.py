"""Tracebacks as text. A bug makes thousands of them, all alike but for the last line.

The standard library reads and parses the source for every frame it formats. Here the text of a
frame is made once.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

MAX_FRAMES = 50
MAX_CAUSES = 10

CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def format_error(error: BaseException) -> str:
    """The error with its traceback, its notes, and the errors it came from."""
    try:
        return "".join(_chain(error, ()))
    except Exception as worse:
        return f"(the traceback can't be had: {type(worse).__name__})"


def _chain(error: BaseException, later: tuple[BaseException, ...]) -> Iterator[str]:
    """The text of an error, given those that came of it."""
    if isinstance(error, BaseExceptionGroup):
        yield from traceback.format_exception(error)
        return
    later = (*later, error)
    cause, said = error.__cause__, CAUSED
    if cause is None and not error.__suppress_context__:
        cause, said = error.__context__, DURING
    # Who raises an error "from" itself makes a circle.
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
