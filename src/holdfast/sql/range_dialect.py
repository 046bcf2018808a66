"""What databases write differently in the statements of a SqlProjection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.model.sql_spec import PayloadField


@dataclass(frozen=True, slots=True)
class RangeDialect:
    """One database's SQL for ranges of events."""

    parameter: Callable[[str], str]
    escaped: Callable[[str], str]
    """A user's SQL in a statement with parameters."""
    column: Callable[[PayloadField], str]
    is_one_of: Callable[[str, Sequence[str]], str]
    """Whether a column has one of these values."""
    one: str
    """One event, given by parameters, as a relation."""
    events: str
    """The columns of events to be read."""


def text(value: str) -> str:
    """A text as a literal in a statement."""
    return "'" + value.replace("'", "''") + "'"


def is_in(column: str, values: Sequence[str]) -> str:
    """Whether a column has one of these values, by IN."""
    return f"{column} IN ({', '.join(values)})"
