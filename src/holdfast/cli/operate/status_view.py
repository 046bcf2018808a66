"""The table of projections that `holdfast status` shows, and the lines below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.cli.output import add_row, new_table, one_line, plural, shown, utc
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.runtime.status import LastError, ProjectionStatus

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


def view_of(statuses: Sequence[ProjectionStatus], registered: Sequence[str]) -> Group:
    """A table with a row for each status; below it, pauses, waits and errors."""
    from rich.console import Group
    from rich.text import Text

    feed = ["feed"] if any(s.feed not in (JOURNAL, MESSAGES) for s in statuses) else []
    queued = ["queued"] if any(status.closed_lanes for status in statuses) else []
    numbers = ("position", "behind", "lag", "events/s", *queued)
    table = new_table("projection", *feed, "state", *numbers, "leader", right=numbers)
    for status in statuses:
        ran = status.epoch or status.paused_by or status.last_error
        state = status.state if ran else "never ran"
        known = status.projection in registered
        add_row(
            table,
            status.projection + ("" if known else " (not in the app)"),
            *([status.feed] if feed else []),
            (state, COLOURS[state]),
            f"{status.position:,}",
            f"{status.lag_events:,}" if status.is_head_known else "?",
            f"{status.lag_seconds:.1f} s",
            f"{status.events_per_second:,.0f}" if status.state == "running" else "",
            *([_queued(status)] if queued else []),
            status.leader or "",
        )
    return Group(table, *(Text(line, style=style) for line, style in _remarks(statuses)))


def _queued(status: ProjectionStatus) -> str:
    if not status.closed_lanes:
        return ""
    return f"{status.queued_events:,} in {plural(status.closed_lanes, 'lane')}"


def _remarks(statuses: Sequence[ProjectionStatus]) -> Iterator[tuple[str, str]]:
    """The lines below the table, each with its colour."""
    for status in statuses:
        name = shown(status.projection)
        if status.paused_at is not None:
            why = f": {one_line(status.paused_note)}" if status.paused_note else ""
            by = shown(status.paused_by or "")
            yield f"  {name} is paused by {by} since {utc(status.paused_at)}{why}", "yellow"
        if status.last_error is not None:
            yield f"  {name} failed{_error(status.last_error)}", "red"
        elif status.waiting_until is not None:
            what = one_line(status.waiting_for or "")
            yield f"  {name} waits until {utc(status.waiting_until)} for {what}", "yellow"


def _error(error: LastError) -> str:
    at = "" if error.position is None else f" at position {error.position:,}"
    what = one_line(f"{error.type}: {error.message}", max_characters=MAX_ERROR_CHARACTERS)
    return f"{at}, {utc(error.at)}: {what}"
