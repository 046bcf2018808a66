"""Envelope: how the events of a topic lie in its records."""

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

    It is never given a tombstone, a record without a value: what that means is for the source.
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
        """The stream, where it can be told though the rest can't be read.

        Never raises: this is the lane in which an undecodable record waits for somebody.
        """
        ...


class _Function:
    """An envelope that is a function of the user's."""

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
            # Not its text, which may quote the payload: it is there as the cause.
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
        """The key: what the function would say is not known, as it has failed."""
        return first_stream(record, key_text)


def of_function(function: Callable[[Record], Decoded | None]) -> Envelope:
    """An envelope that decodes with a function of your own.

    It gets a Record, and gives a Decoded, or None where there is nothing to apply. Whatever it
    raises makes the record undecodable. Whether it gives versions and ids shows record by record.
    """
    if not callable(function):
        raise ConfigError(f"{function!r} can't be called; give a function that takes a Record")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{function!r} is async; a decode function only turns bytes into values")
    return _Function(function)
