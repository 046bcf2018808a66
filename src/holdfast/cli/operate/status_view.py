"""The table of projections that `holdfast status` shows, and the lines below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING

from holdfast.cli.output import (
    Cell,
    Table,
    duration,
    one_line,
    plural,
    shown,
    traceback_lines,
    utc,
)
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.runtime.status import LastError, ProjectionStatus, attempt_of

if TYPE_CHECKING:
    from rich.console import Group

MAX_ERROR_CHARACTERS = 200
"""Maximum length of an error below the table."""

COLOURS = {
    "running": "green",
    "faulted": "bold red",
    "stopped": "yellow",
    "paused": "yellow",
    "never ran": "yellow",
}


def view_of(
    statuses: Sequence[ProjectionStatus],
    registered: Sequence[str],
    *,
    with_tracebacks: bool = False,
) -> Group:
    """A table with a row for each status; below it, pauses, waits and errors."""
    from rich.console import Group
    from rich.text import Text

    feed = ["feed"] if any(s.feed not in (JOURNAL, MESSAGES) for s in statuses) else []
    queued = ["queued"] if any(status.closed_lanes for status in statuses) else []
    stuck = ["stuck"] if any(status.stuck_events for status in statuses) else []
    numbers = ("position", "behind", "lag", "events/s", *queued, *stuck)
    rows: list[tuple[Cell, ...]] = [
        (
            status.projection + ("" if status.projection in registered else " (not in the app)"),
            *([status.feed] if feed else []),
            _state(status),
            f"{status.position:,}",
            f"{status.lag_events:,}" if status.is_head_known else "?",
            f"{status.lag_seconds:.1f} s",
            f"{status.events_per_second:,.0f}" if status.state == "running" else "",
            *([_queued(status)] if queued else []),
            *([_stuck(status)] if stuck else []),
            status.leader or "",
        )
        for status in statuses
    ]
    table = Table(("projection", *feed, "state", *numbers, "leader"), rows, right=numbers)
    remarks = _remarks(statuses, with_tracebacks=with_tracebacks)
    return Group(table, *(Text(line, style=style) for line, style in remarks))


def _state(status: ProjectionStatus) -> tuple[str, str]:
    ran = status.epoch or status.paused_by or status.last_error
    state = status.state if ran else "never ran"
    return state, COLOURS[state]


def _queued(status: ProjectionStatus) -> str:
    if not status.closed_lanes:
        return ""
    return f"{status.queued_events:,} in {plural(status.closed_lanes, 'lane')}"


def _stuck(status: ProjectionStatus) -> str:
    if not status.stuck_events:
        return ""
    return f"{status.stuck_events:,} for {duration(status.stuck_seconds)}"


def _remarks(
    statuses: Sequence[ProjectionStatus], *, with_tracebacks: bool
) -> Iterator[tuple[str, str]]:
    """The lines below the table, each with its colour."""
    told = set[str]()
    for status in statuses:
        name = shown(status.projection)
        if status.paused_at is not None:
            why = f": {one_line(status.paused_note)}" if status.paused_note else ""
            by = shown(status.paused_by or "")
            yield f"  {name} is paused by {by} since {utc(status.paused_at)}{why}", "yellow"
        if status.mode not in (None, "live"):
            yield f"  {name} has mode {status.mode}: nothing is applied", "yellow"
        if status.overrides and name not in told:
            told.add(name)
            values = ", ".join(f"{key}={dumps(value)}" for key, value in status.overrides.items())
            yield f"  {name} has settings that differ from the code: {values}", "cyan"
        if status.waiting_until is not None and not status.is_faulted:
            what = one_line(status.waiting_for or "")
            yield f"  {name} waits until {utc(status.waiting_until)} for {what}", "yellow"
        if status.last_error is not None:
            yield f"  {name} failed{_error(status.last_error)}", "red"
            if with_tracebacks:
                for line in traceback_lines(status.last_error.stacktrace):
                    yield f"    {line}", ""


def _error(error: LastError) -> str:
    at = "" if error.position is None else f" at position {error.position:,}"
    what = one_line(f"{error.type}: {error.message}", max_characters=MAX_ERROR_CHARACTERS)
    tried = f", {attempt_of(error)}" if error.attempts else ""
    since = f", for the first time {utc(error.since)}" if error.attempts > 1 else ""
    return f"{at}{tried}, {utc(error.at)}{since}: {what}"
