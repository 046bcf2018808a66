"""`holdfast status`: how far each projection is, and what is wrong with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.output import (
    add_row,
    json_option,
    new_table,
    one_line,
    plural,
    print_json,
    shown,
    stdout_console,
    utc,
)
from holdfast.errors import StoreUnavailable
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.runtime.status import ProjectionStatus

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

ERROR_CHARACTERS = 200
COLOURS = {
    "running": "green",
    "faulted": "bold red",
    "stopped": "yellow",
    "paused": "yellow",
    "never ran": "yellow",
}


@click.command()
@takes_app()
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    "interval_seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks.",
)
@json_option
def status(app: App, watch: bool, interval_seconds: float, as_json: bool) -> None:
    """Show how far each projection is.

    State, position, lag, rate, leader and last error. "behind" counts positions up to the
    journal's head; "lag" is the age of the oldest event that is not applied. "queued" counts events
    that wait in closed lanes; it is there when any do. With --watch, a
    terminal shows one table that changes; a pipe gets a table, or with --json a line, each time.
    """
    if not watch:
        _print(read_statuses(app), app, as_json)
        return
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _repeat(app, interval_seconds, as_json)
        else:
            _live(app, interval_seconds)


def read_statuses(app: App) -> list[ProjectionStatus]:
    """What has run on the database, and what is registered and has never run (at epoch 0)."""
    found = app.status()
    known = {status.projection for status in found}
    missing = [name for name in app.projections if name not in known]
    return sorted([*found, *_never_ran(app, missing)], key=lambda s: s.projection)


def view_of(statuses: Sequence[ProjectionStatus], registered: Sequence[str]) -> Group:
    """The statuses for people: a table, and below it what is wrong."""
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


def _never_ran(app: App, names: Sequence[str]) -> list[ProjectionStatus]:
    if not names:
        return []
    head = app.journal.head()
    first = next(app.journal.read_raw(limit=1), None)
    waiting = 0.0 if first is None else (datetime.now(UTC) - first.recorded_at).total_seconds()
    return [
        ProjectionStatus(
            projection=name,
            feed=(feed := app.feed_of(name)),
            state="stopped",
            position=0,
            head=head if feed == JOURNAL else 0,
            lag_events=head if feed == JOURNAL else 0,
            lag_seconds=max(0.0, waiting) if feed == JOURNAL else 0.0,
            events_processed=0,
            events_per_second=0.0,
            epoch=0,
            leader=None,
            last_event_id=None,
            last_event_type=None,
            last_processed_at=None,
            last_error=None,
            is_head_known=feed in (JOURNAL, MESSAGES),
        )
        for name in names
    ]


def _print(statuses: Sequence[ProjectionStatus], app: App, as_json: bool) -> None:
    if as_json:
        print_json(_plain(statuses, app))
    elif statuses:
        stdout_console().print(view_of(statuses, app.projections))
    else:
        click.echo("the app has no projections, and none has run on its database")


def _plain(statuses: Sequence[ProjectionStatus], app: App) -> dict[str, Any]:
    return {
        "projections": [
            {**asdict(status), "registered": status.projection in app.projections}
            for status in statuses
        ]
    }


def _repeat(app: App, interval_seconds: float, as_json: bool) -> None:
    while True:
        try:
            _print(read_statuses(app), app, as_json)
        except StoreUnavailable as error:  # It may be back the next time.
            print_json({"error": str(error)}) if as_json else click.echo(one_line(str(error)))
        sys.stdout.flush()
        time.sleep(interval_seconds)


def _live(app: App, interval_seconds: float) -> None:
    from rich.live import Live

    with Live(console=stdout_console(), auto_refresh=False) as live:
        while True:
            live.update(_view(app), refresh=True)
            time.sleep(interval_seconds)


def _view(app: App) -> RenderableType:
    from rich.text import Text

    try:
        return view_of(read_statuses(app), app.projections)
    except StoreUnavailable as error:
        return Text(one_line(str(error)), style="red")


def _queued(status: ProjectionStatus) -> str:
    if not status.closed_lanes:
        return ""
    return f"{status.queued_events:,} in {plural(status.closed_lanes, 'lane')}"


def _remarks(statuses: Sequence[ProjectionStatus]) -> Iterator[tuple[str, str]]:
    """What is to be said below the table, and its colour."""
    for status in statuses:
        name = shown(status.projection)
        if status.paused_at is not None:
            why = f": {one_line(status.paused_note)}" if status.paused_note else ""
            by = shown(status.paused_by or "")
            yield f"  {name} is paused by {by} since {utc(status.paused_at)}{why}", "yellow"
        if status.last_error is not None:
            yield _error(status), "red"
        elif status.waiting_until is not None:
            what = one_line(status.waiting_for or "")
            yield f"  {name} waits until {utc(status.waiting_until)} for {what}", "yellow"


def _error(status: ProjectionStatus) -> str:
    error = status.last_error
    assert error is not None
    at = "" if error.position is None else f" at position {error.position:,}"
    what = one_line(f"{error.type}: {error.message}", max_characters=ERROR_CHARACTERS)
    return f"  {shown(status.projection)} failed{at}, {utc(error.at)}: {what}"
