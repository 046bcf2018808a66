"""Where a projection begins, and where an operator moves it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from holdfast.errors import ConfigError

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
    elif value != "now" and (type(value) is not int or value < 0):
        raise ConfigError(
            f"{name} is {value!r}; it is {or_else}'now', a position (0 or more) or a datetime"
        )
