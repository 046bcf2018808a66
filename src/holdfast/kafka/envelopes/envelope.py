"""Envelope: how the events of a topic are written in its records; and a function as an envelope."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol

from holdfast.errors import ConfigError
from holdfast.kafka.envelopes.field_path import first_stream, key_text
from holdfast.kafka.record import Decoded, Record, undecodable
from holdfast.model.foreign_feed import Undecodable


class Envelope(Protocol):
    """How the events of a topic are written.

    It never gets a tombstone, a record without a value: the source decides what that means.
    """

    @property
    def has_versions(self) -> bool:
        """Whether it can give versions at all, as it is set up."""
        ...

    @property
    def has_ids(self) -> bool:
        """Whether it can give ids at all, as it is set up."""
        ...

    def decode(self, record: Record) -> Decoded | None:
        """What a record says; None where it holds nothing to apply. Raises Undecodable."""
        ...

    def stream_of(self, record: Record) -> str | None:
        """The stream, where it can be read though the rest can't; never raises.

        It is the lane in which an undecodable record is parked.
        """
        ...


class _Function:
    """An envelope that calls a user's function."""

    has_versions = True
    has_ids = True

    def __init__(self, function: Callable[[Record], Decoded | None]) -> None:
        self._function = function

    def decode(self, record: Record) -> Decoded | None:
        try:
            decoded = self._function(record)
        except Undecodable:
            raise
        except Exception as error:
            # The error's text may quote the payload, so it is only the cause.
            raise undecodable(
                record, f"the decode function raised {type(error).__name__}"
            ) from error
        if decoded is not None and not isinstance(decoded, Decoded):
            raise undecodable(
                record,
                f"the decode function gave a {type(decoded).__name__}; it must give a Decoded, or "
                "None where there is nothing to apply",
            )
        return decoded

    def stream_of(self, record: Record) -> str | None:
        """The key: the function has failed, so its stream is unknown."""
        return first_stream(record, key_text)


def of_function(function: Callable[[Record], Decoded | None]) -> Envelope:
    """An envelope that decodes with a user's function.

    The function gets a Record, and returns a Decoded, or None where there is nothing to apply. Any
    error that it raises makes the record undecodable. Each record shows whether it has a version
    and an id.
    """
    if not callable(function):
        raise ConfigError(f"{function!r} can't be called; give a function that takes a Record")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{function!r} is async; a decode function only turns bytes into values")
    return _Function(function)
