"""Checks of what callers and operators pass, before a database sees it.

Every database refuses other values, and says so in its own way or not at all.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.errors import ConfigError

MAX_NUMBER = 2**63 - 1
"""Largest number that the databases store."""

MAX_SECONDS = 1_000_000_000
"""Largest age or timeout: thirty years."""

MAX_CONCURRENCY = 64
"""Maximum of lanes that a process works on at once. Each has a connection to the database."""


def whole(name: str, value: object, *, least: int = 0) -> None:
    """The argument is a whole number that a database can store."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
        raise ConfigError(
            f"{name} is {shown(value)}; it is a whole number from {least} to {MAX_NUMBER}"
        )


def whole_or_none(name: str, value: object) -> None:
    """The argument is a whole number that a database can store, or None."""
    if value is not None:
        whole(name, value)


def text(name: str, value: object) -> None:
    """The argument is a text that every database stores."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {shown(value)}, not a str")
    if "\0" in value or not is_encodable(value):
        raise ConfigError(f"{name} is {shown(value)}; no database stores NUL or a lone surrogate")


def text_or_none(name: str, value: object) -> None:
    """The argument is a text that every database stores, or None."""
    if value is not None:
        text(name, value)


def actor(name: str, value: object) -> None:
    """The argument names somebody."""
    text(name, value)
    if isinstance(value, str) and not value.strip():
        raise ConfigError(f"{name} is empty; it names who makes the change, for the audit")


def concurrency(value: object) -> None:
    """The argument is a number of lanes that a process can work on at once."""
    if type(value) is not int or not 1 <= value <= MAX_CONCURRENCY:
        raise ConfigError(
            f"concurrency is {shown(value)}; it is a number from 1 to {MAX_CONCURRENCY}, since "
            "each lane at work has a connection"
        )


def seconds(name: str, value: object) -> None:
    """The argument is a number of seconds that a clock can add."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_SECONDS:  # type: ignore[operator]
        raise ConfigError(f"{name} is {shown(value)}; it is from 0 to {MAX_SECONDS} seconds")


def moment(name: str, value: object) -> None:
    """The argument is a datetime with a time zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ConfigError(f"{name} is {shown(value)}, not a datetime with a time zone")


def is_encodable(value: str) -> bool:
    """Whether the text can be written as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """The value in an error, cut; a number of thousands of digits has no text."""
    try:
        text = ascii(value)
    except ValueError:
        return "a number of too many digits"
    return text if len(text) <= 100 else f"{text[:100]}…"
