"""Checks of settings; an error names the type, the field and what it takes."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import ConfigError
from holdfast.model.arguments import MAX_SECONDS

_UP_TO = f"{{}}, and {MAX_SECONDS} at most"


def positive(settings: object, *names: str) -> None:
    """Each field is a number above 0 that a clock can add."""
    for name in names:
        _number(
            settings, name, lambda value: 0 < value <= MAX_SECONDS, _UP_TO.format("more than 0")
        )


def positive_or_none(settings: object, name: str) -> None:
    """The field is a number above 0 that a clock can add, or None."""
    if getattr(settings, name) is not None:
        positive(settings, name)


def not_negative(settings: object, name: str) -> None:
    """The field is a number of 0 or more that a clock can add."""
    _number(settings, name, lambda value: 0 <= value <= MAX_SECONDS, _UP_TO.format("0 or more"))


def fraction(settings: object, name: str) -> None:
    """The field is a number from 0 to 1."""
    _number(settings, name, lambda value: 0 <= value <= 1, "from 0 to 1")


def counting(settings: object, *names: str) -> None:
    """Each field is a whole number of 1 or more."""
    for name in names:
        value = getattr(settings, name)
        if type(value) is not int or value < 1:
            raise _error(settings, name, "1 or more")


def counting_or_none(settings: object, name: str, meaning: str) -> None:
    """The field is a whole number of 1 or more, or None."""
    value = getattr(settings, name)
    if value is not None and (type(value) is not int or value < 1):
        raise _error(settings, name, f"1 or more, or None for {meaning}")


def instance(settings: object, name: str, *types: type) -> None:
    """The field is an instance of one of the types."""
    value = getattr(settings, name)
    if not isinstance(value, types):
        expected = " or ".join(_article(cls.__name__) for cls in types)
        raise ConfigError(f"{type(settings).__name__}.{name} is {value!r}, not {expected}")


def function_or_none(settings: object, name: str) -> None:
    """The field can be called, or is None."""
    value: Callable[..., object] | None = getattr(settings, name)
    if value is not None and not callable(value):
        raise ConfigError(f"{type(settings).__name__}.{name} is {value!r}, not a function")


def _number(settings: object, name: str, is_valid: Callable[[float], bool], wanted: str) -> None:
    value = getattr(settings, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_valid(value):
        raise _error(settings, name, wanted)


def _error(settings: object, name: str, wanted: str) -> ConfigError:
    value = getattr(settings, name)
    return ConfigError(f"{type(settings).__name__}.{name} is {value!r}; it must be {wanted}")


def _article(name: str) -> str:
    if name == "NoneType":
        return "None"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
