"""Where a projection begins, and where an operator moves it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from holdfast.errors import ConfigError
from holdfast.model.arguments import MAX_NUMBER, shown

Target = Literal["now"] | int | datetime
"""The end of the journal; a position, with whose next event to go on; or a time."""

Start = Literal["start"] | Target


def check_start(start: object) -> None:
    """Raises ConfigError if a projection can't begin there."""
    if start != "start":
        check_target("start", start, or_else="'start', ")


def check_target(name: str, value: object, or_else: str = "") -> None:
    """Raises ConfigError if a value is no place of the journal."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(f"{name} is {value!r}, which needs a time zone, as in tzinfo=UTC")
    elif value != "now" and not (type(value) is int and 0 <= value <= MAX_NUMBER):
        raise ConfigError(
            f"{name} is {shown(value)}; it is {or_else}'now', a position or a datetime"
        )
